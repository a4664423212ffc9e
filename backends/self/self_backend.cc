// The module libpushpull_backend_self.so: a group of one rank, and the smallest complete backend.
//
// A sum over one rank is its input, scaled; a broadcast is a copy. What a backend of several ranks
// has besides is connecting (connect()) and moving bytes.
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "core/backend.h"
#include "core/reduce.h"

namespace pushpull {
namespace {

class SelfCollective final : public Collective {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override {
    if (auto ok = usable(); !ok) return ok;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      // With one rank there is one slice, the tensor; it may end before the (rounded up) slice
      // does.
      const Run run(part, std::min(part.end, part.total));
      if (run.count != 0) {
        scale(part.dtype, run.out, run.in, reduce.prescale, run.count);
        if (reduce.postscale != 1.0)
          scale(part.dtype, run.out, run.out, reduce.postscale, run.count);
      }
      done(i);
    }
    return {};
  }

  Result<void> broadcast(std::span<const Part> parts, int, const PartDone& done) override {
    if (auto ok = usable(); !ok) return ok;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Run run(parts[i], parts[i].end);
      if (run.count != 0 && run.in != run.out)
        std::memcpy(run.out, run.in, run.count * size_of(parts[i].dtype));
      done(i);
    }
    return {};
  }

  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override {
    if (auto ok = usable(); !ok) return ok;
    if (sizes[0] != 0 && in != out) std::memcpy(out, in, sizes[0]);
    return {};
  }

  Result<void> barrier() override { return usable(); }

  void abort(const Error& reason) override {
    const std::lock_guard lock(mutex_);
    if (!aborted_) aborted_ = reason;
  }

 private:
  // The elements [part.begin, end) of the tensor.
  struct Run {
    Run(const Part& part, size_t end)
        : in(static_cast<const char*>(part.in) + part.begin * size_of(part.dtype)),
          out(static_cast<char*>(part.out) + part.begin * size_of(part.dtype)),
          count(end > part.begin ? end - part.begin : 0) {}
    const char* in;
    char* out;
    size_t count;
  };

  Result<void> usable() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return fail(*aborted_);
    return {};
  }

  std::mutex mutex_;
  std::optional<Error> aborted_;
};

class SelfBackend final : public Backend {
 public:
  std::string_view name() const override { return "self"; }
  Result<std::optional<Identity>> identity() override { return Identity{0, 1}; }
  Result<std::unique_ptr<Rendezvous>> rendezvous(const std::string&) override { return nullptr; }
  bool uses_mesh() const override { return false; }

  Result<std::unique_ptr<Collective>> connect(const Group& group, const Settings&,
                                              Deadline) override {
    if (group.size() != 1)
      return fail(
          ErrorCode::kInvalidArgument,
          "backend self is for a group of one rank; this one has " + std::to_string(group.size()));
    return std::make_unique<SelfCollective>();
  }
};

std::unique_ptr<Backend> create() { return std::make_unique<SelfBackend>(); }

}  // namespace
}  // namespace pushpull

PUSHPULL_MODULE_EXPORT const pushpull::BackendModule* pushpull_backend_v1() {
  static constexpr pushpull::BackendModule kModule{pushpull::kModuleAbi, &pushpull::create};
  return &kModule;
}
