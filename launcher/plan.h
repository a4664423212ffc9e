// What `pushpull run` will start, decided before anything starts.
//
// A pure function of configuration, command and surroundings: tests check plans, `--dry-run` prints
// them, job.h carries them out.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/deadline.h"
#include "core/error.h"
#include "launcher/hosts.h"

namespace pushpull::launcher {

// Everything a plan depends on besides configuration and command.
struct Surroundings {
  std::vector<std::string> environment;  // "NAME=value" each
  std::string folder;                    // absolute: where the pushpull command is
  std::string working_folder;
  OwnNames own_names;                 // of the host this runs on
  std::string address;                // numeric, by which other hosts reach this one
  std::string address_error;          // why there is none
  std::string hostfile;               // content of launch.hostfile, where one is set
  std::vector<std::string> backends;  // whose modules are there
  std::vector<int> cores;             // that this process may use
  bool is_root = false;
  bool is_terminal = false;  // standard input
  // Made for this run.
  std::string run;  // a few random characters
  std::string secret;
  std::string redis_password;
  std::string token;
  int rendezvous_port = 0;  // reserved on the loopback interface
  int redis_port = 0;
};

enum class Input { kNothing, kInherited };

struct Process {
  std::string name;               // "rank 3", "mpirun", "redis"
  std::vector<std::string> argv;  // argv[0] as the user wrote it
  std::vector<std::string> environment;
  std::vector<int> cores;  // empty: all
  Input input = Input::kNothing;
  std::string input_text;  // given on standard input instead, where not empty
};

struct Plan {
  std::string backend;
  std::string engine;  // "local", "mpirun" or "slurm"
  std::string run;     // a few random characters
  // Workers are, or may be, on other hosts: `environment` of a worker then has only what it gets
  // beyond what is there.
  bool remote = false;
  bool meet_at_rank_0 = false;  // at a port that rank 0's shim finds, known only then
  bool share_cores = false;     // each worker gets its share of its host's cores
  std::string address;          // where shims find the launcher
  std::string token;            // by which shims prove that they belong to it
  std::string interface;        // as configured, for the shims
  std::string ports;
  int restarts = 0;                // how often the job may be started again
  std::string script;              // for sbatch: nothing else is to be done then
  std::vector<Process> workers;    // index = rank
  std::optional<Process> starter;  // what starts the workers, where that is not us
  std::optional<Process> redis;    // runs beside them
  int redis_port = 0;
  std::string log_folder;    // empty: the workers' lines come out here
  bool append_logs = false;  // behind what an earlier start of the job wrote
  bool tagged = true;        // with their rank in front
  Duration timeout{};      // zero: none
  Duration grace{};
  Duration start_timeout{};        // for the starter to bring all workers up
  std::vector<std::string> notes;  // to be said before the start
};

// What the starter starts in place of a worker; the engine appends where the launcher listens.
inline constexpr std::string_view kShimCommand = "shim";
// Holds Plan::token in the environment of the starter and its shims.
inline constexpr std::string_view kTokenVariable = "PUSHPULL_LAUNCH_TOKEN";

// `config_file`: as given by -c, or empty. Errors are InvalidArgument.
[[nodiscard]] Result<Plan> make_plan(const Config& config, const std::string& config_file,
                                     const std::vector<std::string>& command,
                                     const Surroundings& around);

// Which of `cores` the index-th of `count` workers of a host gets: contiguous shares; with more
// workers than cores, workers share cores.
std::vector<int> share_of_cores(const std::vector<int>& cores, int index, int count);

// For people, to be copied into a shell: only what each worker's environment has beyond or against
// `base`, secrets hidden.
std::string describe(const Plan& plan, const std::vector<std::string>& base);

// <folder>/rank-3.log
std::string log_file(const std::string& folder, int rank);

// 'it'"'"'s' and so on, so that a POSIX shell reads the text as one word.
std::string shell_quoted(std::string_view text);

}  // namespace pushpull::launcher
