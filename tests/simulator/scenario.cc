#include "tests/simulator/scenario.h"

#include <algorithm>

#include <fmt/format.h>

#include "tests/simulator/random.h"

namespace pushpull::simulator {
namespace {

Signature random_tensor(Random& random) {
  Signature s;
  s.dtype = kAllDTypes[random.below(std::size(kAllDTypes))];
  if (random.chance(5)) {
    s.shape = {0, 3};
  } else if (random.chance(60)) {
    s.shape = {random.between(1, 300)};
  } else {
    s.shape = {random.between(1, 200), random.between(1, 200)};
  }
  return s;
}

Op random_op(Random& random, int key, int size) {
  Op op;
  op.key = fmt::format("key{}", key);
  // The same key has the same tensor in every step: it depends on the key alone.
  Random of_key(static_cast<uint64_t>(key) + 1000 * static_cast<uint64_t>(size));
  op.signature = random_tensor(of_key);
  op.priority = random.chance(70) ? -key : static_cast<int>(random.between(-2, 2));
  if (random.chance(15)) {
    op.kind = CallKind::kBroadcast;
    op.signature.root = static_cast<int>(of_key.below(size));
  } else if (of_key.chance(20)) {
    op.signature.reduce.postscale = 0.5;
  }
  return op;
}

void add_program(Random& random, Scenario& s) {
  const int keys = static_cast<int>(random.between(1, 12));
  const int steps = static_cast<int>(random.between(2, 6));
  for (int i = 0; i < steps; ++i) {
    std::vector<Op> step;
    for (int k = 0; k < keys; ++k)
      if (!random.chance(10)) step.push_back(random_op(random, k, s.size));
    random.shuffle(step);
    if (random.chance(20)) step.push_back({.kind = CallKind::kBarrier, .key = {}, .signature = {}});
    if (step.empty()) step.push_back(random_op(random, 0, s.size));
    s.steps.push_back(std::move(step));
  }
}

void add_twists(Random& random, Scenario& s) {
  s.synchronous = true;
  size_t ops = 0;
  for (size_t i = 0; i + 1 < s.steps.size(); ++i) ops += s.steps[i].size();  // the last stays clean
  if (ops == 0) return;
  for (int64_t i = random.between(1, 3); i > 0; --i) {
    const Twisted t{.rank = static_cast<int>(random.below(s.size)),
                    .op = static_cast<size_t>(random.below(static_cast<int64_t>(ops))),
                    .twist = static_cast<Twist>(random.below(5))};
    // One a call; and a rank that is late for a step whose calls others skip or confuse cannot know
    // what was given up meanwhile: no numbering survives that.
    const auto passes_over = [](Twist w) { return w == Twist::kSkip || w == Twist::kOtherKind; };
    const auto clash = [&](const Twisted& other) {
      const bool late = t.twist == Twist::kLate || other.twist == Twist::kLate;
      return other.op == t.op || (late && (passes_over(t.twist) || passes_over(other.twist))) ||
             (late && other.rank == t.rank);
    };
    if (std::any_of(s.twists.begin(), s.twists.end(), clash)) continue;
    if (t.twist == Twist::kOtherKind) s.reserve_early = false;
    s.twists.push_back(t);
  }
}

void add_injuries(Random& random, Scenario& s) {
  for (int64_t i = random.chance(20) ? 2 : 1; i > 0; --i)
    s.injuries.push_back({.rank = static_cast<int>(random.between(1, s.size - 1)),
                          .injury = static_cast<Injury>(random.below(5)),
                          .when = Microseconds(random.below(s.max_compute_us * 5))});
}

void add_leaver(Random& random, Scenario& s) {
  size_t ops = 0;
  for (const auto& step : s.steps) ops += step.size();
  s.leaver = {.rank = static_cast<int>(random.below(s.size)),
              .ops = static_cast<size_t>(random.below(static_cast<int64_t>(ops))),
              .waits_for_ops = random.chance(50),
              .patient = random.chance(50)};
}

// Broadcasts would fail while a rank is away; that is for the unit tests.
void add_epoch(Random& random, Scenario& s) {
  for (auto& step : s.steps) {
    std::erase_if(step, [](const Op& op) { return op.kind == CallKind::kBroadcast; });
    if (step.empty()) step.push_back({.kind = CallKind::kBarrier, .key = {}, .signature = {}});
  }
  Epoch epoch;
  epoch.join = static_cast<size_t>(random.between(1, static_cast<int64_t>(s.steps.size()) - 1));
  for (int r = 0; r < s.size; ++r)
    epoch.has_data.push_back(
        static_cast<size_t>(random.between(0, static_cast<int64_t>(epoch.join))));
  s.steps.insert(s.steps.begin() + static_cast<ptrdiff_t>(epoch.join),
                 std::vector<Op>{{.kind = CallKind::kJoin, .key = {}, .signature = {}}});
  s.epoch = std::move(epoch);
}

}  // namespace

Scenario make_scenario(uint64_t seed) {
  Random random(seed);
  Scenario s;
  s.seed = seed;
  s.size = static_cast<int>(random.chance(3) ? random.between(60, 130) : random.between(1, 9));
  s.options.size = s.size;
  s.options.run = fmt::format("seed{}", seed);
  s.options.fusion_bytes = size_t{1} << random.between(random.chance(10) ? 4 : 9, 18);
  s.options.stall_warning = std::chrono::seconds(random.between(1, 30));
  s.options.stall_timeout = std::chrono::seconds(random.between(20, 60));
  s.reserve_early = random.chance(50);
  s.synchronous = random.chance(50);
  s.max_delay_us = static_cast<int>(random.pick<int>({1, 50, 1000, 50'000}));
  s.max_compute_us = static_cast<int>(random.pick<int>({1, 1000, 100'000}));
  s.max_exchange_us = static_cast<int>(random.pick<int>({1, 1000, 20'000}));
  add_program(random, s);
  const int64_t story = random.below(100);
  if (s.size > 1 && story < 30) add_twists(random, s);
  if (s.size > 1 && story >= 30 && story < 60) add_injuries(random, s);
  if (s.size > 1 && story >= 60 && story < 80) add_leaver(random, s);
  if (s.size > 1 && story >= 80 && story < 92) add_epoch(random, s);
  if (s.epoch && random.chance(20)) add_injuries(random, s);
  if (random.chance(10)) {
    s.pause_at = Microseconds(random.below(s.max_compute_us * 5));
    s.pause = Microseconds(random.between(1'000'000, 40'000'000));
    // Who goes while the coordinator cannot know that all is done counts as dead, rightly.
    if (s.leaver) s.leaver->patient = true;
  }
  return s;
}

std::string Scenario::describe() const {
  std::string text = fmt::format(
      "seed {}: {} ranks, {} steps, fusion {} bytes, {} numbers, {} steps, delays {}/{}/{} us",
      seed, size, steps.size(), options.fusion_bytes, reserve_early ? "early" : "late",
      synchronous ? "synchronous" : "overlapping", max_delay_us, max_compute_us, max_exchange_us);
  for (const Twisted& t : twists)
    text += fmt::format("; rank {} twists op {} ({})", t.rank, t.op, static_cast<int>(t.twist));
  for (const Injured& i : injuries)
    text += fmt::format("; rank {} is injured ({}) after {} us", i.rank, static_cast<int>(i.injury),
                        i.when.count());
  if (epoch)
    text += fmt::format("; step {} is a join, after {} steps with data", epoch->join,
                        fmt::join(epoch->has_data, ", "));
  if (leaver) text += fmt::format("; rank {} leaves after {} ops", leaver->rank, leaver->ops);
  if (pause.count() > 0)
    text +=
        fmt::format("; the coordinator stops at {} us for {} us", pause_at.count(), pause.count());
  return text;
}

}  // namespace pushpull::simulator
