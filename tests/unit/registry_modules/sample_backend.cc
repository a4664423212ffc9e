// A backend module that works as far as registry_test.cc asks.
#include "core/backend.h"

namespace {

using namespace pushpull;

class SampleBackend : public Backend {
 public:
  std::string_view name() const override { return "sample"; }
  Result<std::optional<Identity>> identity() override { return Identity{2, 3}; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return false; }
  Result<std::unique_ptr<Collective>> connect(const Group&, const Settings&, Deadline) override {
    return fail(ErrorCode::kUnsupported, "sample");
  }
};

std::unique_ptr<Backend> create() { return std::make_unique<SampleBackend>(); }

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr BackendModule kModule{kModuleAbi, &create};
  return &kModule;
}
