#include "core/checked_collective.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include <fmt/format.h>

namespace pushpull {
namespace {

bool overlap(const void* a, const void* b, size_t bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a);
  const auto y = reinterpret_cast<uintptr_t>(b);
  return x < y ? y - x < bytes : x - y < bytes;
}

bool is_float(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBfloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

class CheckedCollective final : public Collective {
 public:
  explicit CheckedCollective(std::unique_ptr<Collective> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }

  Result<void> allreduce(std::span<const Part> parts, const Reduce& reduce,
                         const PartDone& done) override {
    if (auto ok = usable(); !ok) return ok;
    for (size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      if (auto ok = check_part(part, i, slice_length(part, size()), true); !ok) return ok;
      if (part.slice != 0 && part.total / part.slice > static_cast<size_t>(size()))
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("part {}: slices of {} elements are more than one per rank", i,
                                part.slice));
      if (auto ok = check_scale(part, i, reduce); !ok) return ok;
    }
    return note(inner_->allreduce(parts, reduce, done ? done : kIgnore));
  }

  Result<void> broadcast(std::span<const Part> parts, int root, const PartDone& done) override {
    if (auto ok = usable(); !ok) return ok;
    if (root < 0 || root >= size())
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("broadcast from root {} in a group of {} ranks; roots are 0 to {}",
                              root, size(), size() - 1));
    for (size_t i = 0; i < parts.size(); ++i)
      if (auto ok = check_part(parts[i], i, parts[i].total, root == rank()); !ok) return ok;
    return note(inner_->broadcast(parts, root, done ? done : kIgnore));
  }

  Result<void> allgather(const void* in, void* out, std::span<const size_t> sizes) override {
    if (auto ok = usable(); !ok) return ok;
    if (sizes.size() != static_cast<size_t>(size()))
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("allgather with {} sizes in a group of {} ranks", sizes.size(), size()));
    size_t sum = 0;
    for (size_t bytes : sizes) {
      if (bytes > std::numeric_limits<size_t>::max() / 2 - sum)
        return fail(ErrorCode::kInvalidArgument, "allgather: the sizes overflow");
      sum += bytes;
    }
    const size_t own = sizes[static_cast<size_t>(rank())];
    if ((own != 0 && in == nullptr) || (sum != 0 && out == nullptr))
      return fail(ErrorCode::kInvalidArgument, "allgather with a null pointer");
    return note(inner_->allgather(in, out, sizes));
  }

  Result<void> barrier() override {
    if (auto ok = usable(); !ok) return ok;
    return note(inner_->barrier());
  }

  void abort(const Error& reason) override { inner_->abort(reason); }

 private:
  static inline const PartDone kIgnore = [](size_t) {};

  Result<void> usable() const {
    if (broken_) return fail(*broken_);
    return {};
  }

  Result<void> note(Result<void> result) {
    if (!result && !broken_) broken_ = result.error();
    return result;
  }

  static Result<void> check_part(const Part& part, size_t i, size_t limit, bool reads) {
    const auto bad = [i](std::string_view what) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("part {}: {}", i, what));
    };
    const size_t width = size_of(part.dtype);
    if (width == 0) return bad("its element type is not one of the known ones");
    if (part.total > std::numeric_limits<size_t>::max() / 2 / width)
      return bad("its element count overflows");
    if (part.begin > part.end || part.end > limit)
      return bad(
          fmt::format("elements {} to {} are outside of 0 to {}", part.begin, part.end, limit));
    if (part.total == 0 || part.begin == part.end) return {};
    if (part.out == nullptr || (reads && part.in == nullptr)) return bad("its pointer is null");
    if (reinterpret_cast<uintptr_t>(part.out) % width != 0 ||
        (reads && reinterpret_cast<uintptr_t>(part.in) % width != 0))
      return bad("its pointer is not aligned to its elements");
    if (reads && part.in != part.out && overlap(part.in, part.out, part.total * width))
      return bad("input and output overlap without being the same");
    return {};
  }

  static Result<void> check_scale(const Part& part, size_t i, const Reduce& reduce) {
    if (!std::isfinite(reduce.prescale) || !std::isfinite(reduce.postscale))
      return fail(ErrorCode::kInvalidArgument, "a scale of a sum is not finite");
    if (!is_float(part.dtype) && (reduce.prescale != 1.0 || reduce.postscale != 1.0))
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("part {}: {} cannot be scaled", i, to_string(part.dtype)));
    return {};
  }

  std::unique_ptr<Collective> inner_;
  std::optional<Error> broken_;
};

}  // namespace

std::unique_ptr<Collective> make_checked(std::unique_ptr<Collective> inner) {
  return std::make_unique<CheckedCollective>(std::move(inner));
}

}  // namespace pushpull
