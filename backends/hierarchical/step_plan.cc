#include "backends/hierarchical/step_plan.h"

#include <algorithm>

namespace pushpull {
namespace {

constexpr size_t kAlign = 16;  // elements, as slice_length()
// Up to here one carrier's messages take no longer than those of several.
constexpr size_t kOneCarrier = 64u << 10;
// The first step is small, so that the network gets work early; each is twice the one before.
constexpr size_t kFirstStep = 128u << 10;

// The elements [first, last) of the tensor, all in one slice.
Part range(const Part& part, size_t first, size_t last) {
  return {part.in, part.out, part.dtype, part.total, first, last, part.total};
}

Part in_place(Part part) {
  part.in = part.out;
  return part;
}

// Appends a range, or lengthens the last one that it continues.
void append(std::vector<Part>& to, const Part& part) {
  if (!to.empty() && to.back().out == part.out && to.back().end == part.begin)
    to.back().end = part.end;
  else
    to.push_back(part);
}

}  // namespace

void StepPlan::begin(size_t bytes) {
  used_ = 0;
  carriers_ = bytes <= kOneCarrier ? 1 : options_.carriers;
}

Step& StepPlan::open() {
  if (used_ == steps_.size()) steps_.emplace_back();
  Step& step = steps_[used_++];
  step.local.clear();
  step.across.clear();
  step.spread.resize(static_cast<size_t>(options_.carriers));
  for (auto& of_carrier : step.spread) of_carrier.clear();
  step.ends.clear();
  return step;
}

// Small pieces share a step, large ones fill several.
template <class Add>
void StepPlan::cut(std::span<const Part> parts, const std::vector<Cut>& cuts, Add add) {
  Step* step = &open();
  size_t size = std::min(kFirstStep, options_.step_bytes);
  size_t room = size;
  for (size_t i = 0; i < parts.size(); ++i) {
    Part part = parts[i];
    const size_t end = std::min(part.end, cuts[i].limit);
    while (part.begin < end) {
      if (room == 0) {
        step = &open();
        room = size = std::min(2 * size, options_.step_bytes);
      }
      const size_t fits = std::max(room / cuts[i].width / kAlign * kAlign, kAlign);
      part.end = std::min(end, part.begin + fits);
      add(*step, part, cuts[i]);
      const size_t bytes = (part.end - part.begin) * cuts[i].width;
      room = bytes >= room || part.end < end ? 0 : room - bytes;
      part.begin = part.end;
    }
    step->ends.push_back(i);
  }
}

void StepPlan::for_sum(std::span<const Part> parts) {
  std::vector<Cut> cuts;
  size_t all = 0;
  for (const Part& part : parts) {
    const size_t slice = slice_length(part, options_.default_slices);
    const size_t slices = slice == 0 ? 0 : (part.total + slice - 1) / slice;
    cuts.push_back(
        {slices, std::max<size_t>(slices, 1) * size_of(part.dtype), std::min(slice, part.total)});
    all += (part.end - part.begin) * cuts.back().width;
  }
  begin(all);
  cut(parts, cuts,
      [this](Step& step, const Part& part, const Cut& c) { add_sum(step, part, c.slices); });
}

void StepPlan::add_sum(Step& step, const Part& part, size_t slices) {
  const size_t length = slice_length(part, options_.default_slices);
  const size_t width = size_of(part.dtype);
  const auto hosts = static_cast<size_t>(options_.hosts);
  const auto carriers = static_cast<size_t>(carriers_);
  for (size_t s = 0; s < slices; ++s) {
    const size_t first = std::min(s * length + part.begin, part.total);
    const size_t last = std::min(s * length + part.end, part.total);
    if (first == last) continue;
    append(step.local, range(part, first, last));
    append(step.spread[s / hosts % carriers], in_place(range(part, first, last)));
  }
  for (size_t row = 0; row * hosts < slices; ++row) {
    if (static_cast<int>(row % carriers) != options_.carrier) continue;
    const size_t start = row * hosts * length;
    char* const out = static_cast<char*>(part.out) + start * width;
    step.across.push_back({out, out, part.dtype, std::min(part.total - start, hosts * length),
                           part.begin, part.end, length});
  }
}

void StepPlan::for_broadcast(std::span<const Part> parts) {
  std::vector<Cut> cuts;
  size_t all = 0;
  for (const Part& part : parts) {
    cuts.push_back({1, size_of(part.dtype), part.total});
    all += (part.end - part.begin) * size_of(part.dtype);
  }
  begin(all);
  cut(parts, cuts, [this](Step& step, const Part& part, const Cut&) { add_broadcast(step, part); });
}

void StepPlan::add_broadcast(Step& step, const Part& part) {
  step.local.push_back(range(part, part.begin, part.end));
  const auto carriers = static_cast<size_t>(carriers_);
  const size_t strip = slice_length(part.end - part.begin, carriers_);
  for (size_t c = 0; c < carriers; ++c) {
    const size_t first = std::min(part.begin + c * strip, part.end);
    const size_t last = std::min(first + strip, part.end);
    if (first == last) continue;
    const Part mine = in_place(range(part, first, last));
    step.spread[c].push_back(mine);
    if (static_cast<int>(c) == options_.carrier) step.across.push_back(mine);
  }
}

}  // namespace pushpull
