#include "core/net/descriptors.h"

#include <sys/resource.h>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class Descriptors : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0); }
  void TearDown() override { setrlimit(RLIMIT_NOFILE, &before_); }
  static void set_soft(rlim_t soft) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = soft;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  static rlim_t soft() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }
  rlimit before_{};
};

TEST_F(Descriptors, TheSoftLimitIsRaisedOnlyWhereTheGroupNeedsIt) {
  ASSERT_GE(before_.rlim_max, 4096u) << "raise the hard limit of open files (ulimit -Hn)";
  set_soft(1024);
  ASSERT_TRUE(allow_descriptors(8));
  EXPECT_EQ(soft(), 1024u);
  ASSERT_TRUE(allow_descriptors(2000));
  EXPECT_EQ(soft(), 3024u);
  ASSERT_TRUE(allow_descriptors(1000));
  EXPECT_EQ(soft(), 3024u) << "never lowered";
  set_soft(128);
  ASSERT_TRUE(allow_descriptors(8));
  EXPECT_EQ(soft(), 1024u);
}

TEST_F(Descriptors, AHardLimitThatIsTooLowIsSaid) {
  set_soft(64);
  const auto allowed = allow_descriptors(before_.rlim_max);
  ASSERT_FALSE(allowed);
  EXPECT_EQ(allowed.error().code(), ErrorCode::kUnavailable);
  EXPECT_NE(allowed.error().message().find("ulimit -Hn"), std::string::npos) << allowed.error().message();
  EXPECT_EQ(soft(), before_.rlim_max);
}

}  // namespace
}  // namespace pushpull
