#include "launcher/job.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "core/deadline.h"
#include "core/text.h"
#include "launcher/engine.h"
#include "launcher/lines.h"
#include "launcher/output.h"
#include "launcher/private_redis.h"
#include "launcher/process.h"
#include "launcher/verdict.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

// After the first failure the others may say themselves why they end: they notice within about two
// seconds.
constexpr Duration kTimeToNotice = 2s;
// Two interrupts closer than this are one: some senders signal the process and its group.
constexpr Duration kSameInterrupt = 150ms;
// How often a line without newline, such as a progress bar, is shown where there is no terminal.
constexpr Duration kTickerInterval = 10s;
constexpr Duration kTerminalTickerInterval = 100ms;
// For processes that workers left behind to end after TERM.
constexpr auto kStrayPatience = 1000ms;

class Job : public EngineEvents {
 public:
  Job(const Plan& plan, int alive, const Capture& capture)
      : plan_(plan),
        capture_(capture),
        starter_tagger_(fmt::format("[{}] ", plan.starter ? plan.starter->name : "")),
        output_(STDOUT_FILENO, STDERR_FILENO,
                [this] { asio::post(io_, [this] { output_changed(); }); }),
        verdict_(static_cast<int>(plan.workers.size()), Clock::now()),
        signals_(io_),
        alive_(io_),
        end_timer_(io_),
        kill_timer_(io_),
        timeout_timer_(io_),
        ticker_(io_) {
    asio::error_code ignored;
    alive_.assign(fcntl(alive, F_DUPFD_CLOEXEC, 3), ignored);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD}) {
      if (number != SIGHUP || !is_ignored(SIGHUP)) signals_.add(number, ignored);
    }
    for (size_t rank = 0; rank < plan.workers.size(); ++rank) {
      for (const Stream stream : kStreams) {
        taggers_.emplace(std::pair(static_cast<int>(rank), stream),
                         plan.tagged ? fmt::format("[{}] ", rank) : "");
      }
    }
  }

  JobEnd run() {
    const int code = run_to_its_end();
    return {code, verdict_.restart_may_help() && interrupts_ == 0};
  }

  int run_to_its_end() {
    for (const std::string& note : plan_.notes) say(note);
    wait_for_signals();
    watch_the_watcher();
    if (const int code = start(); code != 0) return code;
    if (plan_.timeout > Duration::zero()) {
      at(timeout_timer_, plan_.timeout, [this] { timed_out(); });
    }
    tick();
    while (!(verdict_.all_ended() && engine_->finished()) && !gave_up_) io_.run_one();
    return finish();
  }

  bool everything_written() { return output_.flush(Clock::now()); }

  void worker_started(int rank, const std::string& host, pid_t pid) override {
    verdict_.started(rank, host, pid);
    if (last_sent_ != 0) engine_->send_signal(rank, last_sent_);  // it came too late for that
  }

  void worker_not_started(int rank, const Error& error, int exit_code) override {
    verdict_.not_started(rank, error.message(), exit_code, Clock::now());
    after_a_failure();
  }

  void worker_output(int rank, Stream stream, std::string_view bytes) override {
    if (capture_) return capture_(rank, stream, bytes);
    lines_.clear();
    taggers_.at({rank, stream}).feed(bytes, lines_);
    if (lines_.empty()) return;
    const bool was_open = open_line_of_ == std::pair(rank, stream);
    if (was_open) output_.show_open_line(stream, "");  // it is among the lines now
    output_.write_lines(stream, lines_);
    verdict_.lines(rank, lines_);
    if (output_.full()) set_paused(true);
  }

  void worker_ended(int rank, int wait_status) override {
    const bool had_failed = verdict_.has_failed();
    verdict_.ended(rank, wait_status, Clock::now());
    if (verdict_.has_failed() && !had_failed) after_a_failure();
    after_an_end();
  }

  void worker_lost(int rank, const std::string& why) override {
    const bool had_failed = verdict_.has_failed();
    verdict_.lost(rank, why, Clock::now());
    if (verdict_.has_failed() && !had_failed) after_a_failure();
    after_an_end();
  }

  void note(const std::string& text) override { say(text); }

  void starter_output(std::string_view bytes) override {
    if (capture_) return capture_(-1, Stream::kErr, bytes);
    lines_.clear();
    starter_tagger_.feed(bytes, lines_);
    // When workers fail it only repeats that at length.
    if (!verdict_.has_failed() && !verdict_.all_ended()) output_.write_lines(Stream::kErr, lines_);
  }

  void starter_failed(const Error& error) override {
    verdict_.failed(error.message(), 1);
    gave_up_ = true;
  }

 private:
  void say(const std::string& text) {
    if (capture_) return capture_(-1, Stream::kErr, text + "\n");
    output_.say(text);
  }

  int start() {
    if (auto ok = make_log_folder(); !ok) return give_up(ok.error(), kExitUsage);
    const Process& first = plan_.workers.front();
    if (auto program = find_program(first.argv.front(), first.environment); !program) {
      return give_up(program.error(), exit_code_of(program.error()));
    }
    if (plan_.redis) {
      auto redis = PrivateRedis::start(*plan_.redis, plan_.redis_port);
      if (!redis) return give_up(redis.error(), 1);
      redis_.emplace(std::move(*redis));
    }
    engine_ = plan_.starter ? make_starter_engine(io_, plan_, *this)
                            : make_local_engine(io_, plan_, *this);
    if (auto ok = engine_->start(); !ok) return give_up(ok.error(), exit_code_of(ok.error()));
    reap();  // what ended before anybody listened
    after_an_end();
    return 0;
  }

  int give_up(const Error& error, int code) {
    say("error: " + error.message());
    engine_.reset();
    redis_.reset();
    end_all_children(0ms);
    output_.flush(deadline_in(10s));
    return code;
  }

  Result<void> make_log_folder() const {
    if (plan_.log_folder.empty()) return {};
    std::error_code error;
    std::filesystem::create_directories(plan_.log_folder, error);
    if (!error) return {};
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot make the log folder {}: {}", in_quotes(plan_.log_folder),
                            error.message()));
  }

  template <class Function>
  void at(asio::steady_timer& timer, Duration delay, Function function) {
    timer.expires_after(delay);
    timer.async_wait([function](const asio::error_code& error) {
      if (!error) function();
    });
  }

  void wait_for_signals() {
    signals_.async_wait([this](const asio::error_code& error, int number) {
      if (error) return;
      on_signal(number);
      wait_for_signals();
    });
  }

  void watch_the_watcher() {
    alive_.async_wait(asio::posix::descriptor_base::wait_read,
                      [this](const asio::error_code& error) {
                        if (error) return;
                        kill_all();
                        gave_up_ = true;
                      });
  }

  void on_signal(int number) {
    if (number == SIGCHLD) return reap();
    if (number == SIGUSR1 || number == SIGUSR2) {
      for (const int rank : verdict_.still_running()) engine_->send_signal(rank, number);
      return;
    }
    const auto now = Clock::now();
    if (number == SIGINT && interrupts_ > 0 && now - last_interrupt_ > kSameInterrupt) {
      say("killing the workers");
      gave_up_waiting_for_readers_ = true;
      return kill_all();
    }
    if (number == SIGINT) {
      ++interrupts_;
      last_interrupt_ = now;
    }
    verdict_.interrupted(number);
    to_all(number);
    if (!ending_) {
      say(fmt::format("{}: passed on to the workers, which have {}s to end{}", sigdescr_np(number),
                      seconds(plan_.grace),
                      number == SIGINT ? "; Ctrl-C again kills them at once" : ""));
    }
    kill_after(plan_.grace);
  }

  static std::string seconds(Duration duration) {
    return fmt::format("{:g}", std::chrono::duration<double>(duration).count());
  }

  void timed_out() {
    if (verdict_.all_ended()) return;
    verdict_.timed_out();
    say(fmt::format("the job has run for {}s, its timeout; ending it", seconds(plan_.timeout)));
    to_all(SIGTERM);
    kill_after(plan_.grace);
  }

  void after_a_failure() {
    if (verdict_.all_ended() || ending_) return;
    say(fmt::format("{}; the others have {}s to end", verdict_.first_failure(),
                    seconds(plan_.grace)));
    at(end_timer_, std::min(kTimeToNotice, plan_.grace / 2), [this] { to_all(SIGTERM); });
    kill_after(plan_.grace);
  }

  void kill_after(Duration delay) {
    if (std::exchange(ending_, true)) return;
    at(kill_timer_, delay, [this] {
      if (verdict_.all_ended()) return;
      const auto running = verdict_.still_running();
      if (!running.empty()) {
        say(fmt::format("killing rank {}, still running after {}s", fmt::join(running, ", "),
                        seconds(plan_.grace)));
      }
      kill_all();
    });
  }

  void kill_all() { to_all(SIGKILL); }

  // To end them.
  void to_all(int number) {
    if (last_sent_ != SIGKILL) last_sent_ = number;
    if (!engine_) return;
    for (const int rank : verdict_.still_running()) engine_->send_signal(rank, number);
  }

  void reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
      if (redis_ && pid == redis_->pid()) {
        redis_->forget();
        say(fmt::format("the private Redis server has ended with {}", describe_status(status)));
      } else if (engine_) {
        engine_->child_ended(pid, status);
      }
    }
  }

  void after_an_end() {
    if (verdict_.all_ended() && !std::exchange(shut_down_, true)) engine_->shut_down();
  }

  void output_changed() {
    if (!output_.full()) set_paused(false);
    for (const Stream stream : kStreams) {
      if (!output_.closed(stream) || std::exchange(reported_closed_[stream], true)) continue;
      const int why = output_.error(stream);
      if (why != EPIPE) say(fmt::format("output is lost: {}", errno_text(why)));
      if (engine_) engine_->close_stream(stream);
    }
  }

  void set_paused(bool paused) {
    if (std::exchange(paused_, paused) != paused && engine_) engine_->pause(paused);
  }

  // Shows lines that have no newline yet.
  void tick() {
    const bool terminal = output_.is_terminal(Stream::kOut) || output_.is_terminal(Stream::kErr);
    at(ticker_, terminal ? kTerminalTickerInterval : kTickerInterval, [this] {
      for (auto& [whose, tagger] : taggers_) {
        if (!tagger.take_open_line_changed()) continue;
        const std::string line = tagger.open_line();
        if (output_.is_terminal(whose.second)) {
          output_.show_open_line(whose.second, line);
          open_line_of_ = whose;
        } else if (!line.empty() && tagger.is_progress()) {
          output_.write_lines(whose.second, line + "\n");
        }
      }
      tick();
    });
  }

  int finish() {
    if (gave_up_) kill_all();
    engine_->drain();
    redis_.reset();
    const auto strays = end_all_children(gave_up_ || last_sent_ == SIGKILL ? 0ms : kStrayPatience);
    engine_->drain();
    for (auto& [whose, tagger] : taggers_) {
      lines_.clear();
      tagger.finish(lines_);
      output_.write_lines(whose.second, lines_);
      verdict_.lines(whose.first, lines_);
      output_.show_open_line(whose.second, "");
    }
    // A starter's own helpers, such as ssh, end with it.
    if (!strays.empty() && !plan_.starter) {
      say(fmt::format("ended what the workers left behind: {}", fmt::join(strays, ", ")));
    }
    for (const std::string& line : verdict_.report(plan_.log_folder)) say(line);
    flush();
    return verdict_.exit_code();
  }

  // The reader may be slow, such as a pager; who does not want to wait presses Ctrl-C.
  void flush() {
    while (!gave_up_waiting_for_readers_ && !gave_up_ && !output_.flush(deadline_in(100ms))) {
      io_.restart();
      io_.poll();
      if (interrupts_ > 0) return;
    }
  }

  const Plan& plan_;
  const Capture capture_;
  LineTagger starter_tagger_;
  asio::io_context io_;
  Output output_;
  Verdict verdict_;
  asio::signal_set signals_;
  asio::posix::stream_descriptor alive_;
  asio::steady_timer end_timer_;
  asio::steady_timer kill_timer_;
  asio::steady_timer timeout_timer_;
  asio::steady_timer ticker_;
  std::optional<PrivateRedis> redis_;
  std::map<std::pair<int, Stream>, LineTagger> taggers_;
  std::string lines_;
  std::unique_ptr<Engine> engine_;
  std::pair<int, Stream> open_line_of_{-1, Stream::kOut};
  std::map<Stream, bool> reported_closed_;
  int interrupts_ = 0;
  Clock::time_point last_interrupt_{};
  bool paused_ = false;
  bool ending_ = false;  // the kill timer runs
  int last_sent_ = 0;    // signal by which all were told to end
  bool shut_down_ = false;
  bool gave_up_ = false;  // nothing more is to be waited for
  bool gave_up_waiting_for_readers_ = false;
};

}  // namespace

JobEnd run_job(const Plan& plan, int alive, const Capture& capture) {
  Job job(plan, alive, capture);
  const JobEnd end = job.run();
  // A thread that waits for a reader cannot be joined.
  if (!job.everything_written()) _exit(end.code);
  return end;
}

}  // namespace pushpull::launcher
