// Who failed first, and what the job's exit code is. No processes in it, so that tests can drive
// it.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/deadline.h"

namespace pushpull::launcher {

class Verdict {
 public:
  Verdict(int workers, Clock::time_point start);

  void started(int rank, std::string host, pid_t pid);
  // The last lines are kept for the report.
  void lines(int rank, std::string_view lines);
  void not_started(int rank, std::string why, int exit_code, Clock::time_point now);
  void ended(int rank, int wait_status, Clock::time_point now);
  // Nothing is known of it any more.
  void lost(int rank, std::string why, Clock::time_point now);
  // The launcher passed this signal of its own on, to end the job.
  void interrupted(int signal);
  void timed_out();
  // Somebody else than a worker failed.
  void failed(std::string why, int exit_code);

  bool all_ended() const { return ended_ == workers_.size(); }
  // Whether something failed, so that the job has to end.
  bool has_failed() const { return first_.has_value() || !foreign_.empty(); }
  // Whether a signal or the timeout ends the job.
  bool is_being_ended() const { return signal_ != 0 || timed_out_; }
  std::vector<int> still_running() const;
  int exit_code() const;
  // Whether starting the job again may help: a worker said so by exit code 75, was ended by a
  // signal, or was lost, and nobody wanted the job to end.
  bool restart_may_help() const;
  // For people, several lines; empty where all went well.
  std::vector<std::string> report(const std::string& log_folder) const;
  // A few words, at the moment of the first failure: "rank 1 failed (exit code 3)".
  std::string first_failure() const;

 private:
  enum class State { kWaiting, kRunning, kEnded };
  struct Worker {
    State state = State::kWaiting;
    std::string host;
    pid_t pid = 0;
    bool never_ran = false;
    bool lost = false;
    std::string why;  // where it never ran, or was lost
    int wait_status = 0;
    int code = 0;
    Clock::time_point end{};
    std::string tail;
  };

  int severity(const Worker& worker) const;
  void consider(int rank, Clock::time_point now);
  std::string describe(int rank) const;
  std::string others() const;

  std::vector<Worker> workers_;
  Clock::time_point start_;
  size_t ended_ = 0;
  std::optional<int> first_;  // rank
  int signal_ = 0;
  bool timed_out_ = false;
  std::string foreign_;
  int foreign_code_ = 0;
};

}  // namespace pushpull::launcher
