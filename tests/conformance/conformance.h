// One suite for every backend: what a Collective must do, checked through its interface only.
//
// The tests are written against a group of ranks of which this process hosts one or all: threads as
// ranks (threads_main.cc), or one process per rank under an MPI starter. Whoever links the suite
// instantiates it with the backends it has, one line each:
//
//   INSTANTIATE_TEST_SUITE_P(gloo, Conformance, cases(thread_backend("gloo"), {1, 2, 3, 4, 8}),
//   case_name);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/collective.h"
#include "tests/support/reference.h"
#include "tests/support/sanitized.h"

namespace pushpull::testing {

// Makes groups of a backend under test.
class Groups {
 public:
  virtual ~Groups() = default;

  // What a rank of a group does. It may destroy its collective.
  using Body = std::function<void(std::unique_ptr<Collective>& collective)>;
  // Connects a new group of `ranks` and runs `body` for each of its ranks that this process hosts,
  // at the same time; returns when all are done and closes the group.
  virtual void run(int ranks, const Body& body) = 0;

  // How sums of 16-bit floats round with this backend's settings.
  virtual Rounding16 rounding() const { return Rounding16::kOnce; }
  // What sums must give: the order of summation is a backend's own, and documented.
  virtual Bytes expected_sum(DType dtype, size_t count, const std::vector<Bytes>& inputs,
                             const Reduce& reduce) const {
    return reference_sum(dtype, count, inputs, reduce, rounding());
  }
  // Whether a rank's calls fail by themselves when another rank has closed. Else the coordinator
  // tells it, as it does of every loss, by an abort.
  virtual bool notices_closed_peers() const { return true; }
};

struct Case {
  std::shared_ptr<Groups> groups;
  int ranks = 1;
};
inline std::vector<Case> make_cases(std::shared_ptr<Groups> groups, const std::vector<int>& sizes) {
  std::vector<Case> all;
  for (int ranks : sizes) all.push_back({groups, ranks});
  return all;
}
inline auto cases(std::shared_ptr<Groups> groups, const std::vector<int>& sizes) {
  return ::testing::ValuesIn(make_cases(std::move(groups), sizes));
}
inline std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  return "N" + std::to_string(info.param.ranks);
}

constexpr size_t kMany = 1u << 20;
// 100 MB of float32. Sanitizers, for which size matters less, take as long for a sixth of it.
constexpr size_t kHuge = kSanitized ? 4 * kMany : 25 * kMany;

class Conformance : public ::testing::TestWithParam<Case> {
 protected:
  int ranks() const { return GetParam().ranks; }
  Groups& groups() const { return *GetParam().groups; }
  void run(const Groups::Body& body) { groups().run(ranks(), body); }

  // Different inputs for every rank.
  std::vector<Bytes> inputs(DType dtype, size_t count, uint32_t seed) const;
  Bytes expected_sum(DType dtype, size_t count, const std::vector<Bytes>& in,
                     const Reduce& reduce = {}) const;
};

// A tensor's memory on one rank: where an operation reads and where it writes.
class Placed {
 public:
  Placed(const Bytes& input, bool in_place);
  // The whole tensor, as an allreduce or a broadcast wants it.
  Part sum_part(DType dtype, size_t count, int ranks);
  Part broadcast_part(DType dtype, size_t count);
  const Bytes& result() const { return in_place_ ? in_ : out_; }
  // Nothing but the output may have changed.
  bool input_untouched(const Bytes& input) const { return in_place_ || in_ == input; }

 private:
  bool in_place_;
  Bytes in_;
  Bytes out_;
};

// Counts done(i).
class DoneOnce {
 public:
  explicit DoneOnce(size_t parts) : counts_(parts) {}
  PartDone callback() {
    return [this](size_t i) { ++counts_.at(i); };
  }
  bool all() const {
    for (int count : counts_)
      if (count != 1) return false;
    return true;
  }

 private:
  std::vector<int> counts_;
};

// "" or how the first wrong element differs.
std::string difference(DType dtype, const Bytes& got, const Bytes& expected);

}  // namespace pushpull::testing
