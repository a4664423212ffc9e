// Groups on several hosts, as far as a backend notices: ranks are threads, ranks of one host share
// memory, and those with the same local rank are connected over loopback.
#pragma once

#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/layout.h"
#include "core/registry.h"
#include "tests/support/loopback.h"

namespace pushpull::testing {

class HostNetwork {
 public:
  explicit HostNetwork(const Layout& layout);

  // Connects this rank: shared memory within its host, `backend` between hosts. Every rank calls
  // it.
  [[nodiscard]] Result<std::unique_ptr<Collective>> connect(int rank, Registry& registry,
                                                            const Settings& settings,
                                                            const std::string& backend = "gloo");

 private:
  Group part(LoopbackNetwork& network, int index, const std::vector<int>& ranks);

  const Layout layout_;
  LoopbackNetwork whole_;
  std::vector<std::unique_ptr<LoopbackNetwork>> within_;  // by host
  std::vector<std::unique_ptr<LoopbackNetwork>> across_;  // by local rank of the carriers
};

}  // namespace pushpull::testing
