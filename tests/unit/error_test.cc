#include "core/error.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(Error, CarriesCulpritAndContext) {
  Error error(ErrorCode::kPeerLost, "rank 2 died");
  error.at_rank(2, "node-b").at_key("conv0");
  const Error outer = error.with_context("while connecting");
  EXPECT_EQ(outer.message(), "while connecting: rank 2 died");
  EXPECT_EQ(outer.rank(), 2);
  EXPECT_EQ(outer.host(), "node-b");
  EXPECT_EQ(outer.key(), "conv0");
  EXPECT_TRUE(outer.restartable());
}

TEST(Error, OnlyLostPeersAreRestartableUnlessMarked) {
  Error error(ErrorCode::kAborted, "a newer run replaced this one");
  EXPECT_FALSE(error.restartable());
  error.make_restartable();
  EXPECT_TRUE(error.restartable());
}

}  // namespace
}  // namespace pushpull
