// The hosts of a job, as --hosts and hostfiles name them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/config.h"
#include "core/error.h"

namespace pushpull::launcher {

struct HostSlots {
  std::string name;
  int slots = 1;      // how many workers it takes
  std::string where;  // "flag --hosts", "hosts.txt:3", for messages
  bool operator==(const HostSlots&) const = default;
};

// Names of the host this runs on: its host name, "localhost", its addresses.
using OwnNames = std::vector<std::string>;

// "a:2,b:2"; a host without a number takes one worker. InvalidArgument, with `origin`, for
// anything else: blanks between hosts, a host listed twice (also under two names of this host).
[[nodiscard]] Result<std::vector<HostSlots>> parse_hosts(std::string_view text,
                                                         const std::string& origin,
                                                         const OwnNames& own);

// A host in each line, "a", "a:2" or, as Open MPI writes it, "a slots=2"; # begins a comment.
// Errors name `file` and line.
[[nodiscard]] Result<std::vector<HostSlots>> parse_hostfile(std::string_view content,
                                                            const std::string& file,
                                                            const OwnNames& own);

// Those of launch.hosts, or of launch.hostfile, whose content is given; none where neither is set.
[[nodiscard]] Result<std::vector<HostSlots>> configured_hosts(const Config& config,
                                                              std::string_view hostfile,
                                                              const OwnNames& own);

int slots_of(const std::vector<HostSlots>& hosts);

// Whether the name means the host this runs on.
bool is_own(std::string_view name, const OwnNames& own);

// The first that is not the host this runs on, or the end.
std::vector<HostSlots>::const_iterator first_other_host(const std::vector<HostSlots>& hosts,
                                                        const OwnNames& own);

// The first hosts in their order that take `workers` workers, the last perhaps fewer than it could.
std::vector<HostSlots> place(const std::vector<HostSlots>& hosts, int workers);

// "a:2,b:2"
std::string host_list(const std::vector<HostSlots>& hosts);

}  // namespace pushpull::launcher
