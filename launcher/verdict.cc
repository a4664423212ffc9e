#include "launcher/verdict.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "launcher/plan.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

constexpr size_t kTailBytes = 4096;
constexpr size_t kTailLines = 10;

// Deaths that are told this close to each other may have happened in any order.
constexpr auto kSameMoment = std::chrono::milliseconds(50);

// The last lines of a text, without tag changes; at most kTailLines.
std::vector<std::string> last_lines(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  while (!text.empty() && lines.size() < kTailLines) {
    const size_t start = text.rfind('\n');
    const std::string_view line = text.substr(start == std::string_view::npos ? 0 : start + 1);
    lines.insert(lines.begin(), std::string(line.substr(0, 500)));
    text = start == std::string_view::npos ? std::string_view() : text.substr(0, start);
  }
  return lines;
}

std::string end_of_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = in.tellg();
  if (size <= 0) return {};
  const auto wanted = std::min<std::streamoff>(size, kTailBytes);
  in.seekg(size - wanted);
  std::string text(static_cast<size_t>(wanted), '\0');
  in.read(text.data(), wanted);
  return text;
}

}  // namespace

Verdict::Verdict(int workers, Clock::time_point start)
    : workers_(static_cast<size_t>(workers)), start_(start) {}

void Verdict::started(int rank, std::string host, pid_t pid) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.state == State::kEnded) return;  // nobody waits for it any more
  worker.state = State::kRunning;
  worker.host = std::move(host);
  worker.pid = pid;
}

void Verdict::lines(int rank, std::string_view lines) {
  std::string& tail = workers_[static_cast<size_t>(rank)].tail;
  if (lines.size() > kTailBytes) lines.remove_prefix(lines.size() - kTailBytes);
  if (tail.size() > 4 * kTailBytes) tail.erase(0, tail.size() - kTailBytes);
  tail += lines;
}

void Verdict::not_started(int rank, std::string why, int exit_code, Clock::time_point now) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  worker.never_ran = true;
  worker.why = std::move(why);
  worker.code = exit_code;
  consider(rank, now);
  // Nobody starts those that come after it, either.
  for (Worker& other : workers_) {
    if (other.state != State::kWaiting) continue;
    other.state = State::kEnded;
    other.never_ran = true;
    ++ended_;
  }
}

void Verdict::ended(int rank, int wait_status, Clock::time_point now) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.state == State::kEnded) return;
  worker.state = State::kEnded;
  worker.wait_status = wait_status;
  worker.code = exit_code_of_status(wait_status);
  worker.end = now;
  ++ended_;
  if (worker.code != 0 && !is_being_ended()) consider(rank, now);
}

void Verdict::lost(int rank, std::string why, Clock::time_point now) {
  Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.state == State::kEnded) return;
  worker.lost = true;
  worker.why = std::move(why);
  ended(rank, SIGKILL, now);
}

// When a worker dies, the others notice and fail, too: a death by signal is rather the cause than
// an exit code, and that rather than the code of those who only ask for a restart.
int Verdict::severity(const Worker& worker) const {
  if (worker.never_ran) return 3;
  if (WIFSIGNALED(worker.wait_status)) return 2;
  return worker.code == kExitRestart ? 0 : 1;
}

void Verdict::consider(int rank, Clock::time_point now) {
  const Worker& candidate = workers_[static_cast<size_t>(rank)];
  if (first_) {
    const Worker& known = workers_[static_cast<size_t>(*first_)];
    const bool same_moment = now - known.end < kSameMoment;
    if (!same_moment || severity(candidate) <= severity(known)) return;
  }
  first_ = rank;
}

void Verdict::interrupted(int signal) {
  if (signal_ == 0) signal_ = signal;
}

void Verdict::timed_out() { timed_out_ = true; }

void Verdict::failed(std::string why, int exit_code) {
  if (has_failed()) return;
  foreign_ = std::move(why);
  foreign_code_ = exit_code;
}

std::vector<int> Verdict::still_running() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].state == State::kRunning) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

int Verdict::exit_code() const {
  if (first_) return workers_[static_cast<size_t>(*first_)].code;
  if (!foreign_.empty()) return foreign_code_;
  if (timed_out_) return kExitTimeout;
  if (signal_ == 0) return 0;
  bool all_well = true;
  for (const Worker& worker : workers_) {
    if (worker.code == kExitRestart) return kExitRestart;
    all_well = all_well && worker.state == State::kEnded && worker.code == 0 && !worker.never_ran;
  }
  return all_well ? 0 : 128 + signal_;
}

bool Verdict::restart_may_help() const {
  if (is_being_ended()) return false;
  if (!first_) return exit_code() == kExitRestart;
  const Worker& worker = workers_[static_cast<size_t>(*first_)];
  return worker.code == kExitRestart || (!worker.never_ran && WIFSIGNALED(worker.wait_status));
}

std::string Verdict::describe(int rank) const {
  const Worker& worker = workers_[static_cast<size_t>(rank)];
  if (worker.never_ran) return fmt::format("rank {} could not be started: {}", rank, worker.why);
  const double seconds = std::chrono::duration<double>(worker.end - start_).count();
  if (worker.lost) {
    return fmt::format("rank {} on host {} (pid {}) was lost first: {} after {:.1f} s", rank,
                       worker.host, worker.pid, worker.why, seconds);
  }
  std::string text =
      fmt::format("rank {} on host {} (pid {}) failed first: {} after {:.1f} s", rank, worker.host,
                  worker.pid, describe_status(worker.wait_status), seconds);
  const bool killed = WIFSIGNALED(worker.wait_status) && WTERMSIG(worker.wait_status) == SIGKILL;
  if (killed) text += "; if nobody killed it, the system may have been out of memory";
  return text;
}

std::string Verdict::first_failure() const {
  if (!first_) return foreign_;
  const Worker& worker = workers_[static_cast<size_t>(*first_)];
  if (worker.never_ran) return fmt::format("rank {} could not be started", *first_);
  if (worker.lost) return fmt::format("rank {} was lost ({})", *first_, worker.why);
  return fmt::format("rank {} failed ({})", *first_, describe_status(worker.wait_status));
}

// "rank 0 ended with exit code 75, rank 2 with signal 15 (Terminated)".
std::string Verdict::others() const {
  std::string text;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    const Worker& worker = workers_[rank];
    if (static_cast<int>(rank) == first_ || worker.never_ran) continue;
    text += text.empty() ? "the others: " : ", ";
    text +=
        fmt::format("rank {} {}", rank, worker.lost ? "lost" : describe_status(worker.wait_status));
    if (text.size() > 400) return text + ", …";
  }
  return text;
}

std::vector<std::string> Verdict::report(const std::string& log_folder) const {
  std::vector<std::string> lines;
  if (has_failed()) lines.push_back(first_ ? describe(*first_) : foreign_);
  if (!has_failed() && timed_out_) lines.push_back("the job was ended by its timeout");
  if (!first_ || workers_[static_cast<size_t>(*first_)].never_ran) return lines;
  std::string tail = workers_[static_cast<size_t>(*first_)].tail;
  if (!log_folder.empty()) {
    const std::string path = log_file(log_folder, *first_);
    lines.push_back("its output is in " + path);
    tail = end_of_file(path);
  }
  const std::vector<std::string> last = last_lines(tail);
  if (!last.empty()) lines.push_back("its last lines:");
  for (const std::string& line : last) lines.push_back("  " + line);
  if (const std::string text = others(); !text.empty()) lines.push_back(text);
  return lines;
}

}  // namespace pushpull::launcher
