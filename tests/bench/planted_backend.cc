// The backend `planted`: Gloo, but on the highest rank sums of float32 tensors with at least 1000
// elements are late, and too large by 1 in the first element. What measures must notice both.
#include <chrono>
#include <thread>

#include "core/backend.h"
#include "core/registry.h"

namespace {

using namespace pushpull;

constexpr size_t kFrom = 1000;
constexpr auto kLate = std::chrono::milliseconds(100);

class PlantedCollective final : public Collective {
 public:
  explicit PlantedCollective(std::unique_ptr<Collective> real) : real_(std::move(real)) {}

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override {
    const auto is_target = [this](const Part& part) {
      return rank() == size() - 1 && part.dtype == DType::kFloat32 && part.total >= kFrom;
    };
    return real_->allreduce(parts, reduce, [&](size_t i) {
      const Part& part = parts[i];
      if (is_target(part) && part.begin == 0) {
        static_cast<float*>(part.out)[0] += 1.0f;
        std::this_thread::sleep_for(kLate);  // the others are done
      }
      done(i);
    });
  }

  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override {
    return real_->broadcast(parts, root, done);
  }
  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override {
    return real_->allgather(in, out, sizes);
  }
  Result<void> barrier() override { return real_->barrier(); }
  void abort(const Error& reason) override { real_->abort(reason); }

 private:
  std::unique_ptr<Collective> real_;
};

class PlantedBackend final : public Backend {
 public:
  std::string_view name() const override { return "planted"; }
  Result<std::optional<Identity>> identity() override { return std::nullopt; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return true; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings& settings,
                                              Deadline deadline) override {
    auto gloo = registry_.backend("gloo");
    if (!gloo) return fail(gloo.error());
    auto real = (*gloo)->connect(group, settings, deadline);
    if (!real) return fail(real.error());
    return std::make_unique<PlantedCollective>(std::move(*real));
  }

 private:
  Registry registry_;
};

std::unique_ptr<Backend> create() { return std::make_unique<PlantedBackend>(); }

}  // namespace

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr BackendModule kModule{kModuleAbi, &create};
  return &kModule;
}
