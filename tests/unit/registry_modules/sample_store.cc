// A store module that works as far as registry_test.cc asks.
#include "core/backend.h"

namespace {

class SampleFactory : public pushpull::StoreFactory {
 public:
  std::string_view name() const override { return "sample"; }
  pushpull::Result<std::unique_ptr<pushpull::Store>> open(const pushpull::StoreOptions& options,
                                                          pushpull::Deadline) override {
    return pushpull::fail(pushpull::ErrorCode::kUnsupported, "sample: " + options.url);
  }
};

std::unique_ptr<pushpull::StoreFactory> create() { return std::make_unique<SampleFactory>(); }

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::StoreModule* pushpull_store_v1() {
  static constexpr pushpull::StoreModule kModule{pushpull::kModuleAbi, &create};
  return &kModule;
}
