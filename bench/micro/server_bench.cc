// The coordinator behind real sockets: a training step of as many ranks as given, each a loopback
// connection that one thread of this process serves.
//
// `time` is the step until the last rank has heard of its last batch; `server_cpu_ms` is what the
// process used without that thread, so what rank 0 pays.
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/control/io_thread.h"
#include "core/control/messages.h"
#include "core/control/server.h"
#include "core/log.h"
#include "core/net/hello.h"
#include "tests/support/loopback.h"

namespace pushpull {
namespace {

constexpr uint32_t kKeys = 161;
constexpr int64_t kElements = 159'000;

double cpu_ms(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

// One rank's end of its connection.
struct Client {
  Socket socket;
  std::string received;
  size_t entries = 0;
  uint64_t batches = 0;
  bool ready = false;
};

class Job {
 public:
  explicit Job(int size) : size_(size) {
    CoordinatorOptions options;
    options.size = size;
    options.heartbeat_timeout = std::chrono::hours(1);
    io_ = std::make_unique<IoThread>("bench-io");
    server_ = std::make_unique<ControlServer>(options, "", *io_, make_stderr_logger(LogLevel::kError, "bench"));
    link_ = server_->local_link();
    link_->start({[this](const ToRank& message) {
                    if (const auto* batch = std::get_if<Batch>(&message))
                      server_->batch_started(batch->number);
                  },
                  [](const std::string&) {}});
    if (!server_->join_locally(member(0))) return;
    for (int r = 1; r < size; ++r) {
      auto pair = testing::loopback_pair();
      if (!pair) return;
      clients_.push_back({std::move(pair->first), {}, 0, 0, false});
      Hello hello;
      hello.rank = r;
      hello.detail = encode_joining({member(r), ""});
      server_->accepted(hello, std::move(pair->second));
    }
    std::string connected, definitions;
    encode(FromRank(Connected{}), &connected);
    std::vector<FromRank> own = {Connected{}};
    for (uint32_t k = 0; k < kKeys; ++k) {
      Define define{.id = k, .kind = CallKind::kPushPull, .key = "key" + std::to_string(k), .signature = {}};
      define.signature.shape = {kElements};
      encode(FromRank(define), &definitions);
      own.push_back(define);
      step_.calls.push_back({k, 0, -static_cast<int32_t>(k)});
    }
    for (Client& c : clients_) good_ = good_ && send(c, connected);
    link_->send({own.data(), 1});
    for (Client& c : clients_) good_ = good_ && receive(c, [&] { return c.ready; });
    for (Client& c : clients_) good_ = good_ && send(c, definitions);
    link_->send({own.data() + 1, own.size() - 1});
    complete_ = true;
  }

  ~Job() {
    if (link_) link_->close();
    io_->stop();
    link_.reset();
    server_.reset();
  }

  bool good() const { return complete_ && good_; }

  void step() {
    ++call_;
    for (auto& a : step_.calls) a.call = call_;
    std::string frame;
    encode(FromRank(step_), &frame);
    const FromRank own = step_;
    link_->send({&own, 1});
    for (Client& c : clients_) good_ = good_ && send(c, frame);
    for (Client& c : clients_)
      good_ = good_ && receive(c, [&] { return c.entries == call_ * kKeys; });
    for (Client& c : clients_) {
      frame.clear();
      encode(FromRank(Progress{c.batches}), &frame);
      good_ = good_ && send(c, frame);
    }
  }

 private:
  static Member member(int rank) {
    return {.rank = rank, .host = "h", .pid = rank, .boot_id = {}, .network_namespace = 0, .address = {}};
  }

  static bool send(Client& c, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(c.socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (!wait(c, POLLOUT)) {
        return false;
      }
    }
    return true;
  }

  static bool wait(Client& c, short events) {
    pollfd polled{c.socket.fd(), events, 0};
    return ::poll(&polled, 1, 60'000) > 0;
  }

  template <class Done>
  static bool receive(Client& c, const Done& done) {
    char buffer[16 << 10];
    while (!done()) {
      if (!wait(c, POLLIN)) return false;
      const ssize_t n = ::recv(c.socket.fd(), buffer, sizeof buffer, 0);
      if (n <= 0) return false;
      c.received.append(buffer, static_cast<size_t>(n));
      size_t used = 0;
      for (;;) {
        auto decoded = decode_to_rank(std::string_view(c.received).substr(used));
        if (!decoded) return false;
        if (!*decoded) break;
        used += (*decoded)->bytes;
        if (std::holds_alternative<Ready>((*decoded)->message)) c.ready = true;
        if (const auto* batch = std::get_if<Batch>(&(*decoded)->message)) {
          c.entries += static_cast<size_t>(std::count_if(batch->entries.begin(), batch->entries.end(),
                                                         [](const BatchEntry& e) { return e.last; }));
          c.batches = batch->number;
        }
      }
      c.received.erase(0, used);
    }
    return true;
  }

  int size_;
  std::unique_ptr<IoThread> io_;
  std::unique_ptr<ControlServer> server_;
  std::unique_ptr<ControlLink> link_;
  std::vector<Client> clients_;
  Announce step_;
  uint64_t call_ = 0;
  bool complete_ = false;
  bool good_ = true;
};

void server_step(benchmark::State& state) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  Job job(static_cast<int>(state.range(0)));
  if (job.good()) job.step();
  const double all = cpu_ms(CLOCK_PROCESS_CPUTIME_ID), here = cpu_ms(CLOCK_THREAD_CPUTIME_ID);
  for (auto _ : state)
    if (job.good()) job.step();
  const double used = cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - all - (cpu_ms(CLOCK_THREAD_CPUTIME_ID) - here);
  if (!job.good()) state.SkipWithError("a rank did not hear of its batches");
  state.counters["server_cpu_ms"] = used / static_cast<double>(state.iterations());
}
BENCHMARK(server_step)
    ->Arg(2)->Arg(64)->Arg(1024)
    ->ArgName("ranks")
    ->Iterations(10)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pushpull
