#include "core/explain.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <asio.hpp>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "core/net/socket.h"

namespace pushpull {
namespace {

constexpr auto kAnswerWait = std::chrono::seconds(1);
constexpr size_t kMostStores = 64;

// A signal handler takes no argument, so this is the one table that the process keeps: a descriptor
// for each store that wants to hear of the signal, and the process that it belongs to.
std::array<std::atomic<int>, kMostStores> listeners;  // descriptor + 1; 0 is free
std::atomic<pid_t> listening_process;

void on_signal(int) {
  const int before = errno;
  // Children that were forked have the handler and no store.
  if (listening_process.load() == ::getpid()) {
    const uint64_t one = 1;
    for (auto& listener : listeners) {
      const int fd = listener.load() - 1;
      if (fd >= 0) [[maybe_unused]]
        const auto ignored = ::write(fd, &one, sizeof one);
    }
  }
  errno = before;
}

// Whether the signal is ours, or was nobody's and is now. It stays ours: a late one must not end
// the process.
bool take_signal() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  struct sigaction now {};
  if (::sigaction(SIGUSR2, nullptr, &now) != 0) return false;
  if (now.sa_handler == on_signal) {
    listening_process = ::getpid();
    return true;
  }
  if (now.sa_handler != SIG_DFL) return false;
  listening_process = ::getpid();
  struct sigaction ours {};
  ours.sa_handler = on_signal;
  ours.sa_flags = SA_RESTART;
  return ::sigaction(SIGUSR2, &ours, nullptr) == 0;
}

bool add_listener(int fd) {
  for (auto& listener : listeners) {
    int free = 0;
    if (listener.compare_exchange_strong(free, fd + 1)) return true;
  }
  return false;
}

void remove_listener(int fd) {
  for (auto& listener : listeners) {
    int ours = fd + 1;
    if (listener.compare_exchange_strong(ours, 0)) return;
  }
}

std::string count_line(uint64_t count) { return fmt::format("{:020}\n", count); }

}  // namespace

std::string ExplanationPage::head() const {
  const nlohmann::json who = {{"job", job}, {"rank", rank}, {"size", size}};
  return who.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<ExplanationPage> ExplanationPage::parse(std::string_view bytes) {
  const auto malformed = [] {
    return fail(ErrorCode::kInvalidArgument, "this is no page of a pushpull store");
  };
  const size_t first = bytes.find('\n');
  if (first == std::string_view::npos) return malformed();
  const size_t second = bytes.find('\n', first + 1);
  if (second == std::string_view::npos) return malformed();
  const auto who = nlohmann::json::parse(bytes.substr(0, first), nullptr, false);
  if (!who.is_object() || !who.contains("job") || !who["job"].is_string() ||
      !who.contains("rank") || !who["rank"].is_number_integer() || !who.contains("size") ||
      !who["size"].is_number_integer())
    return malformed();
  ExplanationPage page{who["job"], who["rank"], who["size"], 0,
                       std::string(bytes.substr(second + 1))};
  const char* end = bytes.data() + second;
  const auto [at, error] = std::from_chars(bytes.data() + first + 1, end, page.count);
  if (error != std::errc() || at != end) return malformed();
  return page;
}

class Explainer::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(IoThread& io, ExplanationPage who, Source source)
      : stream_(io.context()),
        timer_(io.context()),
        who_(std::move(who)),
        source_(std::move(source)) {}

  bool open(IoThread& io) {
    page_ = Socket(::memfd_create(kPageName, MFD_CLOEXEC));
    Socket event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!page_.valid() || !event.valid()) return false;
    head_ = who_.head();
    const std::string start = head_ + count_line(0);
    if (::pwrite(page_.fd(), start.data(), start.size(), 0) < 0) return false;
    event_ = event.release();
    stream_.assign(event_);
    if (!add_listener(event_)) return false;
    io.post([self = shared_from_this()] { self->wait(); });
    return true;
  }

  // From any thread; the rest runs on the loop's.
  void close(IoThread& io) {
    remove_listener(event_);
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    io.post([self = shared_from_this()] {
      asio::error_code ignored;
      self->stream_.cancel(ignored);
      self->timer_.cancel();
    });
  }

  void answered(const std::string& text) {
    asio::post(stream_.get_executor(), [self = shared_from_this(), text] {
      if (self->asking_) self->finish(text);
    });
  }

  void after_fork_in_child() {
    page_.close();
    remove_listener(event_);
    ::close(event_);
  }

 private:
  void wait() {
    stream_.async_wait(asio::posix::stream_descriptor::wait_read,
                       [self = shared_from_this()](const asio::error_code& error) {
                         if (error) return;
                         uint64_t count = 0;
                         if (::read(self->event_, &count, sizeof count) > 0) self->explain();
                         self->wait();
                       });
  }

  void explain() {
    std::lock_guard lock(mutex_);
    if (closed_ || asking_) return;
    own_ = source_.own();
    asking_ = true;
    if (!source_.ask()) {
      asio::post(stream_.get_executor(), [self = shared_from_this()] { self->finish(""); });
      return;
    }
    timer_.expires_after(kAnswerWait);
    timer_.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (!error && self->asking_)
        self->finish(
            "the coordinator (rank 0), which knows who is missing, has not answered for 1 s\n");
    });
  }

  void finish(const std::string& answer) {
    asking_ = false;
    timer_.cancel();
    const std::string text = own_ + answer;
    if (::ftruncate(page_.fd(), static_cast<off_t>(head_.size() + count_line(0).size())) == 0) {
      // The count goes last: who sees it sees the text.
      const std::string line = count_line(++who_.count);
      [[maybe_unused]] auto ignored = ::pwrite(page_.fd(), text.data(), text.size(),
                                               static_cast<off_t>(head_.size() + line.size()));
      ignored = ::pwrite(page_.fd(), line.data(), line.size(), static_cast<off_t>(head_.size()));
    }
    make_stderr_logger(LogLevel::kInfo, fmt::format("pushpull rank {}", who_.rank))->info(text);
  }

  asio::posix::stream_descriptor stream_;
  asio::steady_timer timer_;
  ExplanationPage who_;
  const Source source_;
  std::string head_;
  Socket page_;
  int event_ = -1;
  std::string own_;
  bool asking_ = false;  // only on the loop's thread
  std::mutex mutex_;     // held while `source_` is used, against close()
  bool closed_ = false;
};

std::unique_ptr<Explainer> Explainer::start(IoThread& io, const ExplanationPage& who,
                                            Source source) {
  if (!take_signal()) return nullptr;
  auto impl = std::make_shared<Impl>(io, who, std::move(source));
  if (!impl->open(io)) return nullptr;
  return std::unique_ptr<Explainer>(new Explainer(io, std::move(impl)));
}

Explainer::Explainer(IoThread& io, std::shared_ptr<Impl> impl) : io_(io), impl_(std::move(impl)) {}

Explainer::~Explainer() { impl_->close(io_); }

std::function<void(const std::string&)> Explainer::answered() const {
  return [impl = std::weak_ptr(impl_)](const std::string& text) {
    if (const auto live = impl.lock()) live->answered(text);
  };
}

void Explainer::after_fork_in_child() { impl_->after_fork_in_child(); }

}  // namespace pushpull
