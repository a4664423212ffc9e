// Starting and ending child processes.
//
// Children die with the thread that started them (PR_SET_PDEATHSIG), so only the main thread may
// spawn. Each leads its own process group, and descendants that left it are found because this
// process is their subreaper (become_subreaper).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/net/socket.h"

namespace pushpull::launcher {

// Exit codes that shells use, too.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitRestart = 75;  // EX_TEMPFAIL: starting the job again helps
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitNotExecutable = 126;
inline constexpr int kExitNotFound = 127;

struct SpawnOptions {
  std::vector<std::string> argv;  // argv[0] is looked up on the PATH of `environment`
  std::vector<std::string> environment;
  std::vector<int> cores;  // empty: all
  int input = -1;          // descriptors for the child's 0, 1, 2; -1: /dev/null
  int output = -1;
  int error = -1;
  int death_signal = 9;  // when this process dies; 0: none
};

// The file that a shell would run for `name`. Unavailable: not found; InvalidArgument: found, but
// not executable. exit_code_of() makes 127 and 126 of these.
[[nodiscard]] Result<std::string> find_program(const std::string& name,
                                               const std::vector<std::string>& environment);
int exit_code_of(const Error& spawn_error);

[[nodiscard]] Result<pid_t> spawn(const SpawnOptions& options);

// Both ends CLOEXEC; the reading end non-blocking and as large as the system allows.
struct Pipe {
  Socket read;
  Socket write;
};
[[nodiscard]] Result<Pipe> make_pipe();

// A file for a child to write to: emptied first, or written to behind what is in it.
// InvalidArgument: it cannot be written.
[[nodiscard]] Result<Socket> open_log_file(const std::string& path, bool append);

void become_subreaper();
// Descendants of this process whose parents are gone, and direct children not in `known`.
std::vector<pid_t> stray_children(const std::vector<pid_t>& known);
// "sleep", from /proc; "?" where it cannot be read.
std::string program_name(pid_t pid);
// Ends all children of this process, and theirs: TERM first, KILL after `patience`. Returns the
// names and pids of those it found, for people.
std::vector<std::string> end_all_children(std::chrono::milliseconds patience);

// By whoever started this process, as nohup does.
bool is_ignored(int signal);

// That this process may run on.
std::vector<int> usable_cores();

// "exit code 3", "signal 9 (Killed)".
std::string describe_status(int wait_status);
// 3, 137.
int exit_code_of_status(int wait_status);

}  // namespace pushpull::launcher
