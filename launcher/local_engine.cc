#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "core/text.h"
#include "launcher/engine.h"
#include "launcher/pipe_reader.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

struct Worker {
  pid_t pid = -1;  // -1: not started, or ended
  std::map<Stream, PipeReader> readers;
};

class LocalEngine : public Engine {
 public:
  LocalEngine(asio::io_context& io, const Plan& plan, EngineEvents& events)
      : io_(io), plan_(plan), events_(events), workers_(plan.workers.size()) {}

  Result<void> start() override {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const auto pid = start_worker(static_cast<int>(rank));
      if (!pid) {
        events_.worker_not_started(static_cast<int>(rank), pid.error(), exit_code_of(pid.error()));
        return {};
      }
      workers_[rank].pid = *pid;
      events_.worker_started(static_cast<int>(rank), host, *pid);
    }
    return {};
  }

  void send_signal(int rank, int signal) override {
    const pid_t pid = workers_[static_cast<size_t>(rank)].pid;
    if (pid <= 0) return;
    kill(-pid, signal);
    if (signal != SIGKILL) kill(-pid, SIGCONT);  // a stopped one would never act on it
  }

  void pause(bool paused) override {
    for (Worker& worker : workers_) {
      for (auto& [stream, reader] : worker.readers) reader.pause(paused);
    }
  }

  void close_stream(Stream stream) override {
    for (Worker& worker : workers_) {
      const auto reader = worker.readers.find(stream);
      if (reader != worker.readers.end()) reader->second.close();
    }
  }

  void child_ended(pid_t pid, int wait_status) override {
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      Worker& worker = workers_[rank];
      if (worker.pid != pid) continue;
      worker.pid = -1;
      // Its children hold its connections open, and the other ranks would not notice that it died.
      if (wait_status != 0) kill(-pid, SIGKILL);
      for (auto& [stream, reader] : worker.readers) reader.drain();
      events_.worker_ended(static_cast<int>(rank), wait_status);
      return;
    }
  }

  void shut_down() override {}
  bool finished() const override { return true; }

  void drain() override {
    for (Worker& worker : workers_) {
      for (auto& [stream, reader] : worker.readers) reader.drain();
    }
  }

 private:
  Result<pid_t> start_worker(int rank) {
    const Process& process = plan_.workers[static_cast<size_t>(rank)];
    SpawnOptions options;
    options.argv = process.argv;
    options.environment = process.environment;
    options.cores = process.cores;
    Socket input;
    if (process.input == Input::kInherited) {
      input = Socket(fcntl(0, F_DUPFD_CLOEXEC, 3));
      options.input = input.fd();
    }
    if (!plan_.log_folder.empty()) return start_with_log_file(rank, std::move(options));
    std::map<Stream, Pipe> pipes;
    for (const Stream stream : kStreams) {
      auto pipe = make_pipe();
      if (!pipe) return fail(pipe.error());
      pipes.emplace(stream, std::move(*pipe));
    }
    options.output = pipes[Stream::kOut].write.fd();
    options.error = pipes[Stream::kErr].write.fd();
    auto pid = spawn(options);
    if (!pid) return pid;
    for (auto& [stream, pipe] : pipes) {
      workers_[static_cast<size_t>(rank)].readers.emplace(
          stream, PipeReader(io_, std::move(pipe.read), [this, rank, s = stream](auto bytes) {
            events_.worker_output(rank, s, bytes);
          }));
    }
    return pid;
  }

  Result<pid_t> start_with_log_file(int rank, SpawnOptions options) {
    const std::string path = log_file(plan_.log_folder, rank);
    const auto file = open_log_file(path, plan_.append_logs);
    if (!file) return fail(file.error());
    options.output = options.error = file->fd();
    return spawn(options);
  }

  asio::io_context& io_;
  const Plan& plan_;
  EngineEvents& events_;
  std::vector<Worker> workers_;
};

}  // namespace

std::unique_ptr<Engine> make_local_engine(asio::io_context& io, const Plan& plan,
                                          EngineEvents& events) {
  return std::make_unique<LocalEngine>(io, plan, events);
}

}  // namespace pushpull::launcher
