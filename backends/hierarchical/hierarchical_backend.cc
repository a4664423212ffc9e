// The module libpushpull_backend_hierarchical.so: joins shared memory and a backend between hosts.
//
// It connects nothing by itself: core connects both and hands them over (Group::stages).
#include <memory>
#include <utility>

#include "backends/hierarchical/hierarchical_collective.h"
#include "core/backend.h"

namespace pushpull {
namespace {

class HierarchicalBackend final : public Backend {
 public:
  std::string_view name() const override { return "hierarchical"; }
  Result<std::optional<Identity>> identity() override { return std::nullopt; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return false; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings& settings,
                                              Deadline) override {
    if (group.stages == nullptr)
      return fail(ErrorCode::kInvalidArgument,
                  "backend hierarchical joins two others and cannot be asked for by name; "
                  "PUSHPULL_LOCAL=auto takes it where it fits");
    return make_hierarchical(std::move(*group.stages), group, settings);
  }
};

std::unique_ptr<Backend> create() { return std::make_unique<HierarchicalBackend>(); }

}  // namespace
}  // namespace pushpull

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr pushpull::BackendModule kModule{pushpull::kModuleAbi, &pushpull::create};
  return &kModule;
}
