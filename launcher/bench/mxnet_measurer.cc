// pushpull bench --level mxnet: a child runs the cases by kv.pushpull and waitall
// (mxnet_binding/python/pushpull/mxnet/bench.py), this process evaluates.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "launcher/bench/measurer.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using Json = nlohmann::json;

Error out_of_words(const std::string& what) {
  return Error(ErrorCode::kUnavailable, "the bench's Python process " + what);
}

std::string request(const BenchOptions& options) {
  Json cases = Json::array();
  for (const BenchCase& one : options.cases) cases.push_back({{"counts", one.counts}});
  const bool broadcast = options.operation == BenchOperation::kBroadcast;
  return Json{{"op", broadcast ? "broadcast" : "pushpull"},
              {"dtype", to_string(options.dtype)},
              {"iters", options.iterations},
              {"warmup", options.warmup},
              {"latency", options.synchronous},
              {"cases", std::move(cases)}}
      .dump();
}

// A child that is ended, if need be, and waited for.
class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  Child& operator=(Child&&) = delete;
  ~Child() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    wait();
  }
  // Its wait status.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_;
};

class MxnetMeasurer : public Measurer {
 public:
  MxnetMeasurer(Child child, Socket answers)
      : child_(std::move(child)), answers_(std::move(answers)) {}

  Result<void> meet() {
    auto line = next();
    if (!line) return fail(line.error());
    group_ = {line->value("rank", 0), line->value("size", 1), line->value("hosts", 1)};
    return {};
  }

  const BenchGroup& group() const override { return group_; }

  Result<Measurement> measure(const BenchCase&, const BenchProgress& progress) override {
    while (true) {
      auto line = next();
      if (!line) return fail(line.error());
      if (line->contains("done")) {
        progress((*line)["done"].get<size_t>());
        continue;
      }
      Measurement found;
      found.seconds = line->value("seconds", found.seconds);
      found.cpu_seconds = line->value("cpu_seconds", found.cpu_seconds);
      found.memcpy_seconds = line->value("memcpy_seconds", 0.0);
      found.wrong_ranks = line->value("wrong_ranks", found.wrong_ranks);
      if (found.seconds.empty()) return fail(out_of_words("gave an answer without times"));
      return found;
    }
  }

  Result<void> finish() override {
    const int status = child_.wait();
    if (status == 0) return {};
    return fail(out_of_words("ended with " + describe_status(status)));
  }

 private:
  // The next line of its answers. Bounded by the limits of the child's store: it ends when they
  // pass.
  Result<Json> next() {
    size_t end;
    while ((end = buffer_.find('\n')) == std::string::npos) {
      char bytes[65536];
      const ssize_t n = read(answers_.fd(), bytes, sizeof(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return fail(ended());
      buffer_.append(bytes, static_cast<size_t>(n));
    }
    Json line = Json::parse(buffer_.substr(0, end), nullptr, false);
    buffer_.erase(0, end + 1);
    if (!line.is_object()) return fail(out_of_words("gave an answer that is not JSON"));
    return line;
  }

  Error ended() {
    const int status = child_.wait();
    Error error = out_of_words("ended with " + describe_status(status));
    if (exit_code_of_status(status) == kExitRestart) error.make_restartable();
    return error;
  }

  Child child_;
  Socket answers_;
  std::string buffer_;
  BenchGroup group_;
};

Result<void> write_all(int fd, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail(out_of_words("reads nothing: " + errno_text(errno)));
    at += static_cast<size_t>(n);
  }
  return {};
}

void make_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

}  // namespace

Result<std::unique_ptr<Measurer>> make_mxnet_measurer(const BenchOptions& options,
                                                      const std::string& folder,
                                                      const std::vector<std::string>& environment) {
  std::signal(SIGPIPE, SIG_IGN);
  auto input = make_pipe();
  auto output = make_pipe();
  if (!input || !output) return fail((input ? output : input).error());
  const std::string beside = folder + "/python";
  SpawnOptions child;
  child.argv = {access(beside.c_str(), X_OK) == 0 ? beside : "python3", "-m",
                "pushpull.mxnet.bench"};
  child.environment = environment;
  child.input = input->read.fd();
  child.output = output->write.fd();
  child.error = STDERR_FILENO;
  make_blocking(input->read.fd());
  make_blocking(output->read.fd());
  const auto pid = spawn(child);
  if (!pid) return fail(pid.error());
  auto measurer = std::make_unique<MxnetMeasurer>(Child(*pid), std::move(output->read));
  output->write = {};
  input->read = {};
  if (auto ok = write_all(input->write.fd(), request(options)); !ok) return fail(ok.error());
  input->write = {};
  if (auto ok = measurer->meet(); !ok) return fail(ok.error());
  return measurer;
}

}  // namespace pushpull::launcher
