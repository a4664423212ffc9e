// The module libpushpull_backend_shm.so: ranks of one host over shared memory.
//
// It finds nobody by itself: core takes it for groups whose ranks were found by another backend's
// means and can share memory (setting `local`).
#include <memory>
#include <utility>

#include "backends/shm/shm_collective.h"
#include "backends/shm/shm_proof.h"
#include "core/backend.h"

namespace pushpull {
namespace {

class ShmBackend final : public Backend {
 public:
  std::string_view name() const override { return "shm"; }
  Result<std::optional<Identity>> identity() override { return std::nullopt; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return false; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings& settings,
                                              Deadline deadline) override {
    auto segment = share_memory(group, settings.shm_chunk_bytes, deadline);
    if (!segment) return fail(segment.error());
    std::shared_ptr<ShmSegment> shared = std::move(*segment);
    give_to_control(group, shared);
    return make_shm_collective(std::move(shared), group, settings);
  }

 private:
  static void give_to_control(const Group& group, const std::shared_ptr<ShmSegment>& segment) {
    if (!group.shares) return;
    const auto give = [&](int other) {
      group.shares(group.members[0].rank, group.members[static_cast<size_t>(other)].rank,
                   segment->pair(other), segment);
    };
    if (group.rank != 0) return give(group.rank);
    for (int other = 1; other < group.size(); ++other) give(other);
  }
};

std::unique_ptr<Backend> create() { return std::make_unique<ShmBackend>(); }

}  // namespace
}  // namespace pushpull

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr pushpull::BackendModule kModule{pushpull::kModuleAbi, &pushpull::create};
  return &kModule;
}
