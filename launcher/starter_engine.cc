// Workers started by mpirun or srun: one shim per worker connects back to here.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <asio/generic/stream_protocol.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "core/net/acceptor.h"
#include "core/text.h"
#include "launcher/engine.h"
#include "launcher/environment_block.h"
#include "launcher/frames.h"
#include "launcher/keep_alive.h"
#include "launcher/pipe_reader.h"
#include "launcher/process.h"
#include "launcher/shim.h"

namespace pushpull::launcher {
namespace {

using Protocol = asio::generic::stream_protocol;

// For mpirun to end after its last process has, and after a signal.
constexpr auto kStarterPatience = std::chrono::seconds(5);
constexpr auto kLastWords = std::chrono::milliseconds(500);

class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  virtual void frame(int rank, const Frame& frame) = 0;
  virtual void lost(int rank) = 0;
};

// The connection to one shim. Lives as long as a handler of it is outstanding.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(Protocol::socket socket, int rank, LinkEvents& events)
      : socket_(std::move(socket)), rank_(rank), events_(&events) {}

  void receive() {
    socket_.async_read_some(asio::buffer(buffer_),
                            [self = shared_from_this()](const asio::error_code& error, size_t n) {
                              self->received(error, n);
                            });
  }

  void send(FrameType type, std::string_view content) {
    queue_.push_back(encode_frame(type, content));
    if (queue_.size() == 1) send_next();
  }

  void close() {
    events_ = nullptr;
    asio::error_code ignored;
    socket_.close(ignored);
  }

 private:
  void received(const asio::error_code& error, size_t n) {
    if (events_ == nullptr) return;
    bool good = !error;
    reader_.feed(std::string_view(buffer_.data(), good ? n : 0));
    while (good && events_ != nullptr) {
      auto frame = reader_.next();
      if (frame && !*frame) break;
      good = frame.has_value();
      if (good) events_->frame(rank_, **frame);
    }
    if (events_ == nullptr) return;
    if (good) {
      receive();
      return;
    }
    LinkEvents& events = *events_;
    close();
    events.lost(rank_);
  }

  void send_next() {
    asio::async_write(socket_, asio::buffer(queue_.front()),
                      [self = shared_from_this()](const asio::error_code& error, size_t) {
                        if (error) return;
                        self->queue_.pop_front();
                        if (!self->queue_.empty()) self->send_next();
                      });
  }

  Protocol::socket socket_;
  const int rank_;
  LinkEvents* events_;
  std::array<char, 262144> buffer_{};
  FrameReader reader_;
  std::deque<std::string> queue_;
};

struct Worker {
  std::shared_ptr<Link> link;
  ShimGreeting greeting;
  bool claimed = false;
  bool running = false;
  bool done = false;  // ended, or never started
};

class StarterEngine : public Engine, public LinkEvents {
 public:
  StarterEngine(asio::io_context& io, const Plan& plan, EngineEvents& events)
      : io_(io),
        plan_(plan),
        events_(events),
        start_timer_(io),
        end_timer_(io),
        workers_(plan.workers.size()) {}

  ~StarterEngine() override {
    acceptor_.reset();
    for (Worker& worker : workers_) {
      if (worker.link) worker.link->close();
    }
  }

  Result<void> start() override {
    const auto ports = parse_ports(plan_.ports);
    if (!ports) return fail(ports.error());
    Acceptor::Options options;
    options.address = plan_.remote ? plan_.address : "127.0.0.1";
    if (plan_.remote) options.ports = *ports;
    options.secret = plan_.token;
    options.judge = [size = workers_.size(), run = plan_.run](const Hello& hello) -> Result<void> {
      const bool known = hello.rank >= 0 && static_cast<size_t>(hello.rank) < size;
      if (known && hello.run == run && ShimGreeting::decode(hello.detail)) return {};
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("rank {} of run {} is no worker of this job, which has {}",
                              hello.rank, in_quotes(hello.run), size));
    };
    options.accepted = [this](const Hello& hello, Socket socket) {  // on the acceptor's thread
      asio::post(io_, [this, hello, held = std::make_shared<Socket>(std::move(socket))] {
        greeted(hello, std::move(*held));
      });
    };
    auto acceptor = Acceptor::listen(std::move(options));
    if (!acceptor) return fail(acceptor.error().with_context("cannot listen for workers"));
    acceptor_ = std::move(*acceptor);
    if (auto ok = start_starter(); !ok) return ok;
    in(start_timer_, plan_.start_timeout, [this] {
      if (const std::string who = missing(); !who.empty()) {
        events_.starter_failed(
            Error(ErrorCode::kTimeout, plan_.starter->name + " took too long" + who));
      }
    });
    return {};
  }

  void send_signal(int rank, int signal) override {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    if (worker.running && worker.link) {
      worker.link->send(FrameType::kSignal, FieldWriter().number(signal).take());
    }
  }

  void pause(bool paused) override {
    for (Worker& worker : workers_) {
      // Not by reading nothing from the shim: how its worker ended comes the same way.
      if (worker.link)
        worker.link->send(FrameType::kPause, FieldWriter().number(paused ? 1 : 0).take());
    }
  }

  void close_stream(Stream stream) override {
    for (Worker& worker : workers_) {
      if (!worker.link) continue;
      worker.link->send(FrameType::kCloseStream,
                        FieldWriter().number(stream == Stream::kOut ? 1 : 2).take());
    }
  }

  void child_ended(pid_t pid, int wait_status) override {
    if (pid != starter_) return;
    starter_ = -1;
    for (PipeReader& reader : starter_output_) reader.drain();
    if (leaving_) return;
    // What the shims sent last may still be on its way.
    in(end_timer_, kLastWords, [this, wait_status] {
      if (leaving_) return;
      events_.starter_failed(
          Error(ErrorCode::kUnavailable,
                fmt::format("{} ended with {} before the workers did{}", plan_.starter->name,
                            describe_status(wait_status), missing())));
    });
  }

  void shut_down() override {
    leaving_ = true;
    start_timer_.cancel();
    for (Worker& worker : workers_) {
      if (worker.link) worker.link->send(FrameType::kLeave, "");
    }
    in(end_timer_, kStarterPatience, [this] {
      if (starter_ > 0) kill(-starter_, SIGKILL);
    });
  }

  bool finished() const override { return starter_ <= 0; }

  void drain() override {
    for (PipeReader& reader : starter_output_) reader.drain();
  }

 private:
  Result<void> start_starter() {
    SpawnOptions options;
    options.argv = plan_.starter->argv;
    const ShimAddress address{acceptor_->endpoint().to_string(), plan_.run, plan_.interface,
                              plan_.remote ? plan_.ports : ""};
    for (std::string& word : address.words()) options.argv.push_back(std::move(word));
    options.environment = plan_.starter->environment;
    options.death_signal = SIGTERM;  // it has files of its own to remove
    auto out = make_pipe();
    auto err = make_pipe();
    if (!out) return fail(out.error());
    if (!err) return fail(err.error());
    options.output = out->write.fd();
    options.error = err->write.fd();
    const auto pid = spawn(options);
    if (!pid) {
      Error error = pid.error();
      const char* package = plan_.engine == "slurm" ? "slurm-client" : "openmpi-bin";
      return fail(Error(error.code(),
                        fmt::format("{}; install Debian package {}", error.message(), package)));
    }
    starter_ = *pid;
    for (auto* pipe : {&*out, &*err}) {
      starter_output_.emplace_back(io_, std::move(pipe->read),
                                   [this](auto bytes) { events_.starter_output(bytes); });
    }
    return {};
  }

  void greeted(const Hello& hello, Socket socket) {
    Worker& worker = workers_[static_cast<size_t>(hello.rank)];
    if (std::exchange(worker.claimed, true)) return;
    auto greeting = ShimGreeting::decode(hello.detail);
    if (greeting) worker.greeting = std::move(*greeting);
    keep_alive(socket);
    sockaddr_storage address{};
    socklen_t length = sizeof(address);
    getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&address), &length);
    asio::error_code error;  // a socket, so it is taken
    Protocol::socket stream(io_);
    stream.assign(Protocol(address.ss_family, IPPROTO_TCP), socket.release(), error);
    worker.link = std::make_shared<Link>(std::move(stream), hello.rank, *this);
    worker.link->receive();
    if (leaving_) {  // the job has ended without it
      worker.link->send(FrameType::kLeave, "");
    } else if (++greeted_ == workers_.size()) {
      start_workers();
    }
  }

  // Together: only now is known who shares a host, and where rank 0 is.
  void start_workers() {
    acceptor_->close();
    std::string rendezvous;
    if (plan_.meet_at_rank_0) {
      const ShimGreeting& first = workers_.front().greeting;
      if (first.port == 0) {
        return events_.starter_failed(
            Error(ErrorCode::kUnavailable,
                  fmt::format("no port of '{}' is free on host {} for the rendezvous", plan_.ports,
                              first.host)));
      }
      rendezvous = fmt::format(
          "tcp://{}", Endpoint{first.address, static_cast<uint16_t>(first.port)}.to_string());
    }
    const auto hosts = ranks_by_host();
    if (plan_.remote) events_.note(describe_placement(hosts));
    for (const auto& [host, ranks] : hosts) {
      for (size_t i = 0; i < ranks.size(); ++i) start_worker(ranks[i], i, ranks.size(), rendezvous);
    }
  }

  using HostRanks = std::map<std::pair<std::string, std::string>, std::vector<size_t>>;

  HostRanks ranks_by_host() const {
    HostRanks hosts;
    for (size_t rank = 0; rank < workers_.size(); ++rank) {
      const ShimGreeting& greeting = workers_[rank].greeting;
      hosts[{greeting.host, greeting.address}].push_back(rank);
    }
    return hosts;
  }

  std::string describe_placement(const HostRanks& hosts) const {
    constexpr size_t kEnough = 600;
    std::string text;
    for (const auto& [host, ranks] : hosts) {
      const size_t cores = workers_[ranks.front()].greeting.cores.size();
      text += fmt::format("{}{} ({}): rank {} on {} core{}{}", text.empty() ? "" : "; ", host.first,
                          host.second, fmt::join(ranks, ", "), cores, cores == 1 ? "" : "s",
                          plan_.share_cores && ranks.size() > 1 ? ", a share each" : "");
      if (text.size() > kEnough) return text + "; …";
    }
    return text;
  }

  void start_worker(size_t rank, size_t local_rank, size_t local_size,
                    const std::string& rendezvous) {
    const Worker& worker = workers_[rank];
    const Process& process = plan_.workers[rank];
    EnvironmentBlock environment(process.environment);
    environment.set("PUSHPULL_LOCAL_RANK", std::to_string(local_rank));
    environment.set("PUSHPULL_LOCAL_SIZE", std::to_string(local_size));
    if (!rendezvous.empty()) environment.set("PUSHPULL_RENDEZVOUS", rendezvous);
    StartRequest request;
    request.argv = process.argv;
    request.environment = environment.entries();
    request.inherit = plan_.remote;
    if (plan_.share_cores) {
      request.cores = share_of_cores(worker.greeting.cores, static_cast<int>(local_rank),
                                     static_cast<int>(local_size));
    }
    if (!plan_.log_folder.empty())
      request.log_file = log_file(plan_.log_folder, static_cast<int>(rank));
    request.append_log = plan_.append_logs;
    if (worker.link) worker.link->send(FrameType::kStart, request.encode());
  }

  void frame(int rank, const Frame& frame) override {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    FieldReader fields(frame.content);
    switch (frame.type) {
      case FrameType::kStarted:
        worker.running = true;
        return events_.worker_started(rank, worker.greeting.host,
                                      static_cast<pid_t>(fields.number()));
      case FrameType::kNotStarted: {
        worker.done = true;
        const auto code = static_cast<int>(fields.number());
        return events_.worker_not_started(rank, Error(ErrorCode::kUnavailable, fields.text()),
                                          code);
      }
      case FrameType::kOut:
        return events_.worker_output(rank, Stream::kOut, frame.content);
      case FrameType::kErr:
        return events_.worker_output(rank, Stream::kErr, frame.content);
      case FrameType::kEnded:
        return ended(rank, static_cast<int>(fields.number()));
      default:
        return;
    }
  }

  void ended(int rank, int wait_status) {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    worker.running = false;
    if (!std::exchange(worker.done, true)) events_.worker_ended(rank, wait_status);
  }

  template <class Function>
  void in(asio::steady_timer& timer, Duration delay, Function function) {
    timer.expires_after(delay);
    timer.async_wait([function](const asio::error_code& error) {
      if (!error) function();
    });
  }

  // "; missing rank 1, 3", or nothing.
  std::string missing() const {
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < workers_.size() && ranks.size() < 16; ++rank) {
      if (!workers_[rank].claimed) ranks.push_back(rank);
    }
    return ranks.empty() ? "" : fmt::format("; missing rank {}", fmt::join(ranks, ", "));
  }

  // The shim died, and its worker with it, or the whole host.
  void lost(int rank) override {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    worker.link.reset();
    worker.running = false;
    if (std::exchange(worker.done, true) || leaving_) return;
    events_.worker_lost(rank, fmt::format("the connection to host {} broke", worker.greeting.host));
  }

  asio::io_context& io_;
  const Plan& plan_;
  EngineEvents& events_;
  std::unique_ptr<Acceptor> acceptor_;
  size_t greeted_ = 0;
  asio::steady_timer start_timer_;
  asio::steady_timer end_timer_;
  std::vector<Worker> workers_;
  std::vector<PipeReader> starter_output_;
  pid_t starter_ = -1;
  bool leaving_ = false;
};

}  // namespace

std::unique_ptr<Engine> make_starter_engine(asio::io_context& io, const Plan& plan,
                                            EngineEvents& events) {
  return std::make_unique<StarterEngine>(io, plan, events);
}

}  // namespace pushpull::launcher
