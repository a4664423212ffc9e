#include "launcher/shim.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/write.hpp>

#include "core/deadline.h"
#include "core/environment.h"
#include "core/net/acceptor.h"
#include "core/net/endpoint.h"
#include "core/text.h"
#include "launcher/environment_block.h"
#include "launcher/frames.h"
#include "launcher/keep_alive.h"
#include "launcher/output.h"
#include "launcher/pipe_reader.h"
#include "launcher/plan.h"
#include "launcher/process.h"
#include "launcher/reserved_port.h"

namespace pushpull::launcher {
namespace {

using Protocol = asio::generic::stream_protocol;

// Output that waits to be sent; beyond this the worker is not read.
constexpr size_t kFull = size_t{4} << 20;
constexpr auto kStrayPatience = std::chrono::milliseconds(1000);
constexpr auto kPatienceWithLauncher = std::chrono::seconds(30);

bool is_of_the_starter(std::string_view name) {
  constexpr std::array<std::string_view, 7> prefixes = {"OMPI_", "PMIX_", "PMI_",  "ORTE_",
                                                        "OPAL_", "PRTE_", "SLURM_"};
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view prefix) {
    return name.substr(0, prefix.size()) == prefix;
  });
}

class Shim {
 public:
  Shim(int rank, std::vector<std::string> environment)
      : rank_(rank), environment_(std::move(environment)), link_(io_), signals_(io_) {
    asio::error_code ignored;
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGCONT, SIGCHLD})
      signals_.add(number, ignored);
  }

  int run(const ShimAddress& launcher, const std::string& token) {
    become_subreaper();
    if (auto ok = call(launcher, token); !ok) {
      fmt::print(stderr, "pushpull: error: rank {} on host {} cannot reach its launcher: {}\n",
                 rank_, host_name(), ok.error().message());
      return 1;
    }
    receive();
    wait_for_signals();
    while (!leaving_) io_.run_one();
    return clean_up();
  }

 private:
  Result<void> call(const ShimAddress& launcher, const std::string& token) {
    const auto endpoint = parse_endpoint(launcher.endpoint);
    const auto ports = parse_ports(launcher.ports);
    if (!endpoint) return fail(endpoint.error());
    if (!ports) return fail(ports.error());
    const Deadline deadline = deadline_in(kPatienceWithLauncher);
    auto address = choose_address(launcher.interface, *endpoint, deadline);
    if (!address) return fail(address.error());
    ShimGreeting greeting{host_name(), *address, 0, usable_cores()};
    if (rank_ == 0) {
      if (auto port = ReservedPort::make_in(*ports)) rendezvous_.emplace(std::move(*port));
      if (rendezvous_) greeting.port = rendezvous_->number();
    }
    Hello hello;
    hello.job = "launch";
    hello.run = launcher.run;
    hello.rank = rank_;
    hello.detail = greeting.encode();
    // Whoever started this process and ends before the launcher answers was ended with it.
    const auto orphaned = [starter = getppid()] { return getppid() != starter; };
    auto socket = dial(*endpoint, token, hello, deadline, orphaned);
    if (!socket) return fail(socket.error());
    keep_alive(*socket);
    const int family = address->find(':') == std::string::npos ? AF_INET : AF_INET6;
    asio::error_code error;  // it is a socket, so it is taken
    link_.assign(Protocol(family, IPPROTO_TCP), socket->release(), error);
    return {};
  }

  void wait_for_signals() {
    signals_.async_wait([this](const asio::error_code& error, int number) {
      if (error) return;
      if (number == SIGCHLD) reap();
      // Slurm sends CONT before TERM; the worker gets one with each signal anyway.
      if (number != SIGCHLD && number != SIGCONT) signal_worker(number);
      wait_for_signals();
    });
  }

  void receive() {
    link_.async_read_some(asio::buffer(buffer_), [this](const asio::error_code& error, size_t n) {
      if (error) {  // the launcher is gone
        launcher_gone_ = leaving_ = true;
        return;
      }
      reader_.feed(std::string_view(buffer_.data(), n));
      while (!leaving_) {
        auto frame = reader_.next();
        if (!frame) launcher_gone_ = leaving_ = true;
        if (!frame || !*frame) break;
        handle(**frame);
      }
      if (!leaving_) receive();
    });
  }

  void handle(const Frame& frame) {
    FieldReader fields(frame.content);
    switch (frame.type) {
      case FrameType::kStart:
        return start(frame.content);
      case FrameType::kSignal:
        return signal_worker(static_cast<int>(fields.number()));
      case FrameType::kCloseStream: {
        const auto stream = fields.number() == 1 ? Stream::kOut : Stream::kErr;
        if (const auto found = readers_.find(stream); found != readers_.end())
          found->second.close();
        return;
      }
      case FrameType::kPause:
        paused_by_launcher_ = fields.number() != 0;
        return pause(false);
      case FrameType::kLeave:
        leaving_ = true;
        return;
      default:
        return;
    }
  }

  void start(const std::string& content) {
    auto request = StartRequest::decode(content);
    if (!request) return not_started(request.error());
    SpawnOptions options;
    options.argv = request->argv;
    options.cores = request->cores;
    options.environment = environment_of_worker(*request);
    const auto pid =
        request->log_file.empty()
            ? spawn_with_pipes(options)
            : spawn_with_file(options, request->log_file, request->append_log);
    if (!pid) return not_started(pid.error());
    pid_ = *pid;
    send(FrameType::kStarted, FieldWriter().number(pid_).take());
  }

  std::vector<std::string> environment_of_worker(const StartRequest& request) const {
    EnvironmentBlock block(request.inherit ? environment_ : request.environment);
    const auto copy = [&](const std::string& entry) {
      const std::string_view name = EnvironmentBlock::name_of(entry);
      block.set(name, std::string_view(entry).substr(std::min(name.size() + 1, entry.size())));
    };
    if (request.inherit) {
      block.remove_if([](std::string_view name) { return name.starts_with("DMLC_"); });
      for (const std::string& entry : request.environment) copy(entry);
    } else {
      for (const std::string& entry : environment_) {
        if (is_of_the_starter(EnvironmentBlock::name_of(entry))) copy(entry);
      }
    }
    block.remove_if([](std::string_view name) { return name == kTokenVariable; });
    return block.entries();
  }

  void not_started(const Error& error) {
    send(FrameType::kNotStarted,
         FieldWriter().number(exit_code_of(error)).text(error.message()).take());
  }

  Result<pid_t> spawn_with_pipes(SpawnOptions& options) {
    auto out = make_pipe();
    auto err = make_pipe();
    if (!out) return fail(out.error());
    if (!err) return fail(err.error());
    options.output = out->write.fd();
    options.error = err->write.fd();
    auto pid = spawn(options);
    if (!pid) return pid;
    read(Stream::kOut, FrameType::kOut, std::move(out->read));
    read(Stream::kErr, FrameType::kErr, std::move(err->read));
    return pid;
  }

  Result<pid_t> spawn_with_file(SpawnOptions& options, const std::string& path, bool append) {
    std::error_code ignored;  // opening says what is wrong
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
    const auto file = open_log_file(path, append);
    if (!file) return fail(file.error());
    options.output = options.error = file->fd();
    return spawn(options);
  }

  void read(Stream stream, FrameType type, Socket pipe) {
    readers_.emplace(stream, PipeReader(io_, std::move(pipe), [this, type](std::string_view bytes) {
                       send(type, bytes);
                       if (queued_ > kFull) pause(true);
                     }));
  }

  void pause(bool paused) {
    paused = paused || paused_by_launcher_ || queued_ > kFull;
    for (auto& [stream, reader] : readers_) reader.pause(paused);
  }

  void send(FrameType type, std::string_view content) {
    queue_.push_back(encode_frame(type, content));
    queued_ += queue_.back().size();
    if (queue_.size() == 1) send_next();
  }

  void send_next() {
    asio::async_write(link_, asio::buffer(queue_.front()),
                      [this](const asio::error_code& error, size_t) {
                        if (error) return;  // receive() notices, too
                        queued_ -= queue_.front().size();
                        queue_.pop_front();
                        if (queued_ < kFull / 2) pause(false);
                        if (!queue_.empty()) send_next();
                      });
  }

  void signal_worker(int number) {
    if (pid_ <= 0) return;
    kill(-pid_, number);
    if (number != SIGKILL) kill(-pid_, SIGCONT);
  }

  void reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (pid != pid_) continue;
      if (status != 0)
        kill(-pid_, SIGKILL);  // as in the local engine: they hold its connections open
      pid_ = -1;
      for (auto& [stream, reader] : readers_) reader.drain();
      send(FrameType::kEnded, FieldWriter().number(status).take());
    }
  }

  int clean_up() {
    if (launcher_gone_) signal_worker(SIGKILL);
    end_all_children(launcher_gone_ ? std::chrono::milliseconds(0) : kStrayPatience);
    return launcher_gone_ ? 1 : 0;
  }

  const int rank_;
  const std::vector<std::string> environment_;
  std::optional<ReservedPort> rendezvous_;  // kept until rank 0 serves there, and after
  asio::io_context io_;
  Protocol::socket link_;
  asio::signal_set signals_;
  std::array<char, 65536> buffer_{};
  FrameReader reader_;
  std::deque<std::string> queue_;
  size_t queued_ = 0;
  std::map<Stream, PipeReader> readers_;
  pid_t pid_ = -1;
  bool paused_by_launcher_ = false;
  bool leaving_ = false;
  bool launcher_gone_ = false;
};

}  // namespace

Result<ShimAddress> ShimAddress::from_words(const std::vector<std::string>& words) {
  if (words.size() != 4) {
    return fail(ErrorCode::kInvalidArgument, "`pushpull shim` is started by `pushpull run` only");
  }
  return ShimAddress{words[0], words[1], words[2], words[3]};
}

int run_shim(const std::vector<std::string>& words, const Config::Environment& environment,
             const std::vector<std::string>& whole_environment) {
  const auto launcher = ShimAddress::from_words(words);
  const auto starter = detect_starter([&](std::string_view name) -> std::optional<std::string> {
    // Its rank among the started processes, not one that was handed down.
    if (name.starts_with("PUSHPULL_")) return std::nullopt;
    return environment(name);
  });
  const std::string token = environment(kTokenVariable).value_or("");
  if (!launcher || !starter || !starter->rank || token.empty()) {
    fmt::print(stderr,
               "pushpull: error: `pushpull shim` is started by mpirun or srun under `pushpull "
               "run`, which give it a rank\n");
    return kExitUsage;
  }
  return Shim(*starter->rank, whole_environment).run(*launcher, token);
}

}  // namespace pushpull::launcher
