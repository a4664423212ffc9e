// Workers started by mpirun: one shim per worker connects back to here.
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>

#include "launcher/engine.h"
#include "launcher/frames.h"
#include "launcher/pipe_reader.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using Protocol = asio::local::stream_protocol;

// For mpirun to end after its last process has, and after a signal.
constexpr auto kStarterPatience = std::chrono::seconds(5);
constexpr auto kLastWords = std::chrono::milliseconds(500);

class Link;

class LinkEvents {
 public:
  virtual ~LinkEvents() = default;
  // false: there is no such rank, or somebody has it already.
  virtual bool claim(int rank, const std::shared_ptr<Link>& link) = 0;
  virtual void frame(int rank, const std::string& host, const Frame& frame) = 0;
  virtual void lost(int rank) = 0;
};

// The connection to one shim. Lives as long as a handler of it is outstanding.
class Link : public std::enable_shared_from_this<Link> {
 public:
  Link(Protocol::socket socket, LinkEvents& events)
      : socket_(std::move(socket)), events_(&events) {}

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
      good = frame && take(**frame);
    }
    if (events_ == nullptr) return;
    if (good) {
      receive();
      return;
    }
    LinkEvents& events = *events_;
    close();
    if (rank_ >= 0) events.lost(rank_);
  }

  // The first frame says who it is; false: this is no shim of ours.
  bool take(const Frame& frame) {
    if (rank_ >= 0) {
      events_->frame(rank_, host_, frame);
      return true;
    }
    FieldReader fields(frame.content);
    const int64_t rank = fields.number();
    host_ = fields.text();
    if (frame.type != FrameType::kHello || !fields.complete() || rank < 0 || rank > INT32_MAX)
      return false;
    if (!events_->claim(static_cast<int>(rank), shared_from_this())) return false;
    rank_ = static_cast<int>(rank);
    return true;
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
  LinkEvents* events_;
  int rank_ = -1;
  std::string host_;
  std::array<char, 262144> buffer_{};
  FrameReader reader_;
  std::deque<std::string> queue_;
};

struct Worker {
  std::shared_ptr<Link> link;
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
        acceptor_(io),
        start_timer_(io),
        end_timer_(io),
        workers_(plan.workers.size()) {}

  ~StarterEngine() override {
    for (Worker& worker : workers_) {
      if (worker.link) worker.link->close();
    }
  }

  Result<void> start() override {
    const std::string address = fmt::format("pushpull-launcher-{}-{}", getpid(), plan_.run);
    asio::error_code error;
    acceptor_.open(Protocol(), error);
    if (!error) acceptor_.bind(Protocol::endpoint(std::string(1, '\0') + address), error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("cannot listen for the workers' shims: {}", error.message()));
    }
    accept();
    if (auto ok = start_starter(address); !ok) return ok;
    in(start_timer_, plan_.start_timeout, [this] {
      if (const std::string who = missing(); !who.empty()) {
        events_.starter_failed(Error(ErrorCode::kTimeout, "mpirun took too long" + who));
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
  Result<void> start_starter(const std::string& address) {
    SpawnOptions options;
    options.argv = plan_.starter->argv;
    options.argv.push_back(address);
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
      return fail(Error(error.code(), error.message() + "; install Debian package openmpi-bin"));
    }
    starter_ = *pid;
    for (auto* pipe : {&*out, &*err}) {
      starter_output_.emplace_back(io_, std::move(pipe->read),
                                   [this](auto bytes) { events_.starter_output(bytes); });
    }
    return {};
  }

  void accept() {
    acceptor_.async_accept([this](const asio::error_code& error, Protocol::socket socket) {
      if (error) return;
      ucred peer{};
      socklen_t length = sizeof(peer);
      const int got = getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &peer, &length);
      // Abstract sockets have no permissions: anybody on this host may knock.
      if (got == 0 && peer.uid == geteuid()) {
        std::make_shared<Link>(std::move(socket), *this)->receive();
      }
      accept();
    });
  }

  bool claim(int rank, const std::shared_ptr<Link>& link) override {
    if (rank >= static_cast<int>(workers_.size())) return false;
    Worker& worker = workers_[static_cast<size_t>(rank)];
    if (std::exchange(worker.claimed, true)) return false;
    worker.link = link;
    if (leaving_) {  // the job has ended without it
      link->send(FrameType::kLeave, "");
      return true;
    }
    const Process& process = plan_.workers[static_cast<size_t>(rank)];
    StartRequest request{process.argv, process.environment, process.cores, ""};
    if (!plan_.log_folder.empty()) request.log_file = log_file(plan_.log_folder, rank);
    link->send(FrameType::kStart, request.encode());
    return true;
  }

  void frame(int rank, const std::string& host, const Frame& frame) override {
    Worker& worker = workers_[static_cast<size_t>(rank)];
    FieldReader fields(frame.content);
    switch (frame.type) {
      case FrameType::kStarted:
        worker.running = true;
        return events_.worker_started(rank, host, static_cast<pid_t>(fields.number()));
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

  // The shim died, and its worker with it.
  void lost(int rank) override {
    workers_[static_cast<size_t>(rank)].link.reset();
    if (workers_[static_cast<size_t>(rank)].running) ended(rank, SIGKILL);
  }

  asio::io_context& io_;
  const Plan& plan_;
  EngineEvents& events_;
  Protocol::acceptor acceptor_;
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
