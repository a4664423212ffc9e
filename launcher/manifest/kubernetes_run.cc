#include "launcher/manifest/kubernetes_run.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

#include "launcher/lines.h"
#include "launcher/manifest/cluster_state.h"
#include "launcher/manifest/kubectl.h"
#include "launcher/manifest/manifest.h"
#include "launcher/output.h"
#include "launcher/plan.h"
#include "launcher/process.h"

namespace pushpull::launcher {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPollInterval = 1s;
// An API server may be restarted or overloaded; pods run on without it.
constexpr Duration kClusterPatience = 120s;
// For the last lines to arrive after the job has ended.
constexpr Duration kLogPatience = 10s;
// A log ends a moment before its pod does; one that has ended for this long broke off.
constexpr Duration kLogGap = 10s;
// For an apply that is under way when the job is to be ended.
constexpr Duration kApplyPatience = 60s;

// What is known of a pod's log.
struct Log {
  bool followed = false;
  Clock::time_point ended_at{};  // where it is not followed any more
  time_t last = 0;               // when something came; 0: nothing yet
};

std::string as_utc(time_t time) {
  tm fields{};
  gmtime_r(&time, &fields);
  char text[32] = "";
  strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &fields);
  return text;
}

class ClusterJob {
 public:
  ClusterJob(const KubernetesRun& run, int alive)
      : run_(run),
        output_(STDOUT_FILENO, STDERR_FILENO,
                [this] { asio::post(io_, [this] { output_changed(); }); }),
        kubectl_(io_, run.environment, run.context, run.job.name_space),
        signals_(io_),
        alive_(io_),
        timer_(io_) {
    asio::error_code ignored;
    alive_.assign(fcntl(alive, F_DUPFD_CLOEXEC, 3), ignored);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD})
      signals_.add(number, ignored);
  }

  int run() {
    output_.say(fmt::format("{} workers as Job {} on Kubernetes, backend {}", run_.job.workers,
                            run_.job.name, run_.job.backend));
    wait_for_signals();
    alive_.async_wait(asio::posix::descriptor_base::wait_read,
                      [this](const asio::error_code& error) {
                        if (!error) clean_up();
                      });
    apply();
    while (!finished_) io_.run_one();
    for (auto& [rank, tagger] : taggers_) print(tagger.finish(lines_) > 0);
    output_.flush(deadline_in(10s));
    return code_;
  }

 private:
  void apply() {
    applied_ = applying_ = true;
    call({"apply", "-f", "-"}, run_.objects, [this](const KubectlEnd& end) {
      applying_ = false;
      if (ending_) return remove();
      if (end.wait_status != 0) return end_with(1, "kubectl could not apply the job: " + end.err);
      last_answer_ = Clock::now();
      poll();
    });
  }

  void call(const std::vector<std::string>& words, const std::string& input, Kubectl::Done done) {
    auto ok = kubectl_.start(words, input, std::move(done));
    if (ok) return;
    const int code = exit_code_of(ok.error());
    applied_ = applied_ && code != kExitNotFound;
    applying_ = false;
    end_with(code, ok.error().message() + "; --engine kubernetes works through kubectl");
  }

  void poll() {
    if (ending_) return;
    call({"get", "jobs,pods", "-o", "json", "-l",
          selector(run_.job.name) + ",app.kubernetes.io/component=worker"},
         "", [this](const KubectlEnd& end) { answered(end); });
  }

  void answered(const KubectlEnd& end) {
    if (ending_) return;
    const auto state = parse_cluster_state(end.out);
    if (end.wait_status != 0 || !state) {
      if (Clock::now() - last_answer_ > kClusterPatience)
        return end_with(1, "the cluster does not answer: " + end.err);
    } else {
      last_answer_ = Clock::now();
      if (!state->job.found) return end_with(1, "somebody deleted the job");
      observe(*state);
    }
    const bool followed = std::any_of(logs_.begin(), logs_.end(),
                                      [](const auto& log) { return log.second.followed; });
    const bool logs_may_come = followed && Clock::now() < last_logs_;
    if (verdict_.ended() && !logs_may_come)
      return end_with(verdict_.exit_code(), verdict_.report());
    timer_.expires_after(kPollInterval);
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) poll();
    });
  }

  void observe(const ClusterState& state) {
    const bool had_ended = verdict_.ended();
    verdict_.observe(state);
    if (!had_ended && verdict_.ended()) last_logs_ = Clock::now() + kLogPatience;
    for (const PodState& pod : state.workers) {
      const std::string kind = pod.trouble.substr(0, pod.trouble.find(':'));
      if (!kind.empty() && told_.insert(pod.name + kind).second)
        output_.say(fmt::format("rank {} (pod {}) waits: {}", pod.rank, pod.name, pod.trouble));
      if (pod.started) read_log(pod);
      if (pod.ended && pod.exit_code != 0 && told_.insert(pod.name).second)
        output_.say(fmt::format("rank {} (pod {}, node {}) ended with exit code {}", pod.rank,
                                pod.name, pod.node, pod.exit_code));
    }
  }

  // Once, but again where it broke off and the pod goes on.
  void read_log(const PodState& pod) {
    const auto known = logs_.find(pod.name);
    if (known == logs_.end()) return follow(pod, {"logs", "-f", pod.name});
    const Log& log = known->second;
    if (log.followed || pod.ended || Clock::now() - log.ended_at < kLogGap) return;
    const std::string since = as_utc(log.last);
    output_.say(fmt::format(
        "the log of rank {} (pod {}) broke off; it is followed again from {}, so lines of that "
        "second may come twice",
        pod.rank, pod.name, since));
    follow(pod, {"logs", "-f", "--since-time=" + since, pod.name});
  }

  void follow(const PodState& pod, const std::vector<std::string>& words) {
    const int rank = pod.rank;
    const std::string name = pod.name;
    taggers_.try_emplace(rank, fmt::format("[{}] ", rank));
    logs_[name].followed = true;
    const auto ok = kubectl_.start(
        words, "", [this, rank, name](const KubectlEnd& end) { log_ended(rank, name, end); },
        [this, rank, name](std::string_view bytes) {
          logs_[name].last = time(nullptr);
          if (!run_.log_folder.empty()) return keep(rank, bytes);
          print(taggers_.at(rank).feed(bytes, lines_) > 0);
        });
    if (!ok) end_with(1, ok.error().message());
  }

  void log_ended(int rank, const std::string& name, const KubectlEnd& end) {
    Log& log = logs_[name];
    log.followed = false;
    log.ended_at = Clock::now();
    // Nothing yet: the container may not be up, so the next answer of the cluster tries again.
    if (log.last == 0 && end.wait_status != 0) {
      logs_.erase(name);
      return;
    }
    if (log.last == 0) log.last = time(nullptr);
    if (end.wait_status != 0 && !ending_)
      output_.say(fmt::format("the log of rank {} (pod {}) broke off: {}", rank, name, end.err));
  }

  // A rank's pods, one after the other, share its file.
  void keep(int rank, std::string_view bytes) {
    auto& file = files_[rank];
    if (!file.is_open()) {
      std::error_code ignored;
      std::filesystem::create_directories(run_.log_folder, ignored);
      file.open(log_file(run_.log_folder, rank), std::ios::binary | std::ios::trunc);
    }
    file << bytes << std::flush;
    if (!file) end_with(1, fmt::format("cannot write {}", log_file(run_.log_folder, rank)));
  }

  void print(bool something) {
    if (something) output_.write_lines(Stream::kOut, lines_);
    lines_.clear();
    if (output_.full()) kubectl_.pause(true);
  }

  void output_changed() {
    if (!output_.full()) kubectl_.pause(false);
  }

  void wait_for_signals() {
    signals_.async_wait([this](const asio::error_code& error, int number) {
      if (error) return;
      wait_for_signals();
      if (number == SIGCHLD) return reap();
      if (ending_ && number == SIGINT) finished_ = true;  // no patience
      end_with(128 + number, fmt::format("{}: deleting the job, which takes up to {} s",
                                         sigdescr_np(number), run_.job.grace_seconds));
    });
  }

  void reap() {
    int status = 0;
    pid_t pid = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) kubectl_.child_ended(pid, status);
  }

  void end_with(int code, const std::string& why) {
    if (ending_) return;
    code_ = code;
    if (!why.empty()) output_.say(why);
    clean_up();
  }

  void clean_up() {
    if (std::exchange(ending_, true)) return;
    timer_.cancel();
    if (!applied_) {
      finished_ = true;
      asio::post(io_, [] {});
      return;
    }
    if (!applying_) return remove();
    // What is deleted beside an apply, the apply makes again.
    timer_.expires_after(kApplyPatience);
    timer_.async_wait([this](const asio::error_code& error) {
      if (!error) remove();
    });
  }

  void remove() {
    if (std::exchange(removing_, true)) return;
    timer_.cancel();
    const auto ok = kubectl_.start(
        {"delete", "--ignore-not-found", "--cascade=foreground", "--timeout=60s", "-f", "-"},
        run_.objects, [this](const KubectlEnd& end) {
          if (end.wait_status != 0)
            output_.say(
                fmt::format("could not delete all of the job, do it by kubectl delete "
                            "all,configmap,secret,networkpolicy -l {}: {}",
                            selector(run_.job.name), end.err));
          finished_ = true;
        });
    finished_ = !ok;
  }

  const KubernetesRun& run_;
  asio::io_context io_;
  Output output_;
  Kubectl kubectl_;
  asio::signal_set signals_;
  asio::posix::stream_descriptor alive_;
  asio::steady_timer timer_;
  ClusterVerdict verdict_;
  std::map<int, LineTagger> taggers_;   // by rank
  std::map<int, std::ofstream> files_;  // by rank
  std::string lines_;
  std::map<std::string, Log> logs_;  // by pod
  std::set<std::string> told_;
  Clock::time_point last_answer_{};
  Clock::time_point last_logs_{};
  bool applied_ = false;   // or in part: there may be something to delete
  bool applying_ = false;  // kubectl apply runs
  bool removing_ = false;
  bool ending_ = false;
  bool finished_ = false;
  int code_ = 1;
};

}  // namespace

int run_on_kubernetes(const KubernetesRun& run, int alive) { return ClusterJob(run, alive).run(); }

}  // namespace pushpull::launcher
