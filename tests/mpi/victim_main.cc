// A rank of a job that goes wrong: mpi_victim HOW. Sums 100 MB again and again until one rank is
// killed, stopped or aborts, and prints what the store says about it: "rank 0 of 3: PeerLost,
// culprit 1: …".
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "core/kvstore.h"
#include "tests/support/sanitized.h"

namespace pushpull {
namespace {

// 100 MB. A sanitizer needs as long for a tenth of it.
constexpr size_t kFloats = testing::kSanitized ? 2'500'000 : 25'000'000;
constexpr int kVictim = 1;

[[noreturn]] void end(const std::string& line, int code) {
  fmt::print("{}\n", line);
  std::fflush(stdout);
  _exit(code);
}

int run(const std::string& how) {
  Registry registry;
  Settings settings;
  settings.backend = "mpi";
  settings.job = "victim";
  settings.local = "backend";  // over MPI, though all are on one host
  auto backend = registry.backend("mpi");
  if (!backend) end(backend.error().message(), 1);
  auto identity = (*backend)->identity();
  if (!identity) end(identity.error().message(), 1);
  settings.rank = (**identity).rank;
  settings.size = (**identity).size;
  settings.heartbeat_timeout = std::chrono::seconds(2);
  auto store = KVStore::create(settings, registry);
  if (!store) end(store.error().message(), 1);
  KVStore& kv = **store;

  std::vector<float> values(kFloats, 0.0f);
  const Tensor tensor{values.data(), DType::kFloat32, {static_cast<int64_t>(kFloats)}};
  for (int round = 0;; ++round) {
    auto work = kv.pushpull("k", {&tensor, 1}, {&tensor, 1});
    if (round == 2 && kv.rank() == kVictim) {
      usleep(10'000);  // somewhere in the middle
      if (how == "kill") raise(SIGKILL);
      if (how == "stop") raise(SIGSTOP);
      if (how == "abort") kv.abort(Error(ErrorCode::kAborted, "the loss is NaN"));
    }
    const auto ok = work.wait();
    if (ok) continue;
    const auto again = kv.pushpull("k", {&tensor, 1}, {&tensor, 1}).wait();
    const bool sticky = !again && again.error().message() == ok.error().message();
    end(fmt::format("rank {} of {}: {}, culprit {}{}: {}", kv.rank(), kv.num_workers(),
                    to_string(ok.error().code()), ok.error().rank(), sticky ? "" : ", not sticky",
                    ok.error().message()),
        ok.error().restartable() ? 75 : 1);
  }
}

}  // namespace
}  // namespace pushpull

int main(int argc, char** argv) { return pushpull::run(argc > 1 ? argv[1] : ""); }
