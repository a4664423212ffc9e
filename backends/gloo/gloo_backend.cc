// The module libpushpull_backend_gloo.so: Gloo over TCP connections that core has authenticated.
#include <memory>

#include "backends/exchange/exchange.h"
#include "backends/gloo/gloo_context.h"
#include "backends/gloo/gloo_error.h"
#include "backends/gloo/gloo_point_to_point.h"
#include "core/backend.h"

namespace pushpull {
namespace {

class GlooBackend final : public Backend {
 public:
  std::string_view name() const override { return "gloo"; }
  Result<std::optional<Identity>> identity() override { return std::nullopt; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return true; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings& settings,
                                              Deadline deadline) override {
    auto sockets = group.mesh->connect(deadline);
    if (!sockets) return fail(sockets.error());
    std::vector<transport::Peer> peers;
    for (int r = 0; r < group.size(); ++r)
      peers.push_back({group.describe(r), group.members[static_cast<size_t>(r)].host});
    try {
      const auto device =
          std::make_shared<transport::Device>(std::move(*sockets), std::move(peers));
      const auto timeout =
          std::chrono::duration_cast<std::chrono::milliseconds>(settings.stall_timeout);
      auto context = std::make_shared<GlooContext>(group.rank, group.size(), device, timeout);
      return make_exchange(
          std::make_unique<GlooPointToPoint>(std::move(context), settings.stall_timeout), settings);
    } catch (const std::exception& exception) {
      return fail(gloo_error(exception));
    }
  }
};

std::unique_ptr<Backend> create() { return std::make_unique<GlooBackend>(); }

}  // namespace
}  // namespace pushpull

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr pushpull::BackendModule kModule{pushpull::kModuleAbi, &pushpull::create};
  return &kModule;
}
