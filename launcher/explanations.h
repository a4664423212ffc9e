// Processes of running jobs on this host, found by the pages that their stores keep
// (core/explain.h).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/deadline.h"
#include "core/explain.h"

namespace pushpull::launcher {

struct StoreProcess {
  pid_t pid = 0;
  std::string path;  // of the page, in /proc
  ExplanationPage page;
};
// Those that this user may look at, by job and rank.
std::vector<StoreProcess> find_stores();

struct Answer {
  StoreProcess store;
  std::optional<std::string> text;
  std::string why;  // where there is no text
};
// Sends each process SIGUSR2 once and waits for all pages to change.
std::vector<Answer> ask_to_explain(const std::vector<StoreProcess>& stores, Duration patience);

}  // namespace pushpull::launcher
