#include "core/checked_collective.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace pushpull {
namespace {

// Counts calls, and fails when told to: the way to the wrapper's error paths.
class Counting : public Collective {
 public:
  Counting(int& calls, bool& failing) : calls_(calls), failing_(failing) {}
  int rank() const override { return 1; }
  int size() const override { return 3; }
  Result<void> allreduce(std::span<const Part> parts, const Reduce&, const PartDone& done) override {
    for (size_t i = 0; i < parts.size(); ++i) done(i);
    return result();
  }
  Result<void> broadcast(std::span<const Part>, int, const PartDone&) override { return result(); }
  Result<void> allgather(const void*, void*, std::span<const size_t>) override { return result(); }
  Result<void> barrier() override { return result(); }
  void abort(const Error&) override {}

 private:
  Result<void> result() {
    ++calls_;
    if (failing_) return fail(ErrorCode::kPeerLost, "rank 2 is gone");
    return {};
  }
  int& calls_;
  bool& failing_;
};

class Checked : public ::testing::Test {
 protected:
  int calls = 0;
  bool failing = false;
  std::unique_ptr<Collective> collective =
      make_checked(std::make_unique<Counting>(calls, failing));
  std::vector<float> memory = std::vector<float>(100);
  Part good{memory.data(), memory.data(), DType::kFloat32, 100, 0, slice_length(100, 3)};

  std::string refusal(const Part& part, const Reduce& reduce = {}) {
    const auto ok = collective->allreduce({&part, 1}, reduce, {});
    if (ok) return "accepted";
    EXPECT_EQ(ok.error().code(), ErrorCode::kInvalidArgument);
    return ok.error().message();
  }
};

TEST_F(Checked, PassesOnWhatIsRight) {
  EXPECT_TRUE(collective->allreduce({&good, 1}, {}, {}));
  EXPECT_TRUE(collective->broadcast({&good, 1}, 2, {}));
  EXPECT_TRUE(collective->barrier());
  Part empty{nullptr, nullptr, DType::kFloat32, 0, 0, 0};
  EXPECT_TRUE(collective->allreduce({&empty, 1}, {}, {}));
  Part nothing = good;
  nothing.in = nothing.out = nullptr;
  nothing.begin = nothing.end;
  EXPECT_TRUE(collective->allreduce({&nothing, 1}, {}, {}));
  Part no_input = good;
  no_input.in = nullptr;
  EXPECT_TRUE(collective->broadcast({&no_input, 1}, 0, {})) << "rank 1 is not the root";
  EXPECT_EQ(calls, 6);
}

TEST_F(Checked, RefusesWhatIsWrong) {
  Part part = good;
  part.end = 49;
  EXPECT_EQ(refusal(part), "part 0: elements 0 to 49 are outside of 0 to 48");
  part = good;
  part.begin = part.end + 1;
  EXPECT_NE(refusal(part), "accepted");
  part = good;
  part.out = nullptr;
  EXPECT_EQ(refusal(part), "part 0: its pointer is null");
  part = good;
  part.out = memory.data() + 50;
  EXPECT_EQ(refusal(part), "part 0: input and output overlap without being the same");
  part = good;
  part.in = part.out = reinterpret_cast<char*>(memory.data()) + 2;
  EXPECT_EQ(refusal(part), "part 0: its pointer is not aligned to its elements");
  part = good;
  part.total = std::numeric_limits<size_t>::max() / 4;
  EXPECT_EQ(refusal(part), "part 0: its element count overflows");
  part = good;
  part.dtype = static_cast<DType>(99);
  EXPECT_EQ(refusal(part), "part 0: its element type is not one of the known ones");
  part = good;
  part.dtype = DType::kInt32;
  EXPECT_EQ(refusal(part, {0.5, 1.0}), "part 0: int32 cannot be scaled");
  EXPECT_EQ(refusal(good, {1.0, std::numeric_limits<double>::infinity()}),
            "a scale of a sum is not finite");
  for (int root : {-1, 3}) EXPECT_FALSE(collective->broadcast({&good, 1}, root, {}));
  EXPECT_FALSE(collective->allgather(memory.data(), memory.data(), std::vector<size_t>{1, 1}));
  EXPECT_FALSE(collective->allgather(nullptr, memory.data(), std::vector<size_t>{1, 1, 1}));
  const std::vector<size_t> huge(3, std::numeric_limits<size_t>::max() / 3);
  EXPECT_FALSE(collective->allgather(memory.data(), memory.data(), huge));
  EXPECT_EQ(calls, 0) << "nothing was sent";
  EXPECT_TRUE(collective->barrier()) << "and the collective is usable";
}

TEST_F(Checked, AFailureStays) {
  failing = true;
  EXPECT_FALSE(collective->barrier());
  failing = false;
  for (const auto& result :
       {collective->barrier(), collective->allreduce({&good, 1}, {}, {}),
        collective->broadcast({&good, 1}, 0, {}),
        collective->allgather(nullptr, nullptr, std::vector<size_t>{0, 0, 0})}) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().message(), "rank 2 is gone");
  }
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace pushpull
