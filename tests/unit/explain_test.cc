#include "core/explain.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(ExplanationPage, IsReadAsItWasWritten) {
  ExplanationPage page{"a \"job\"\nof two lines", 3, 8, 0, {}};
  const auto read = ExplanationPage::parse(page.head() + "00012\nbatch 1\n  and more\n");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->job, page.job);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->size, 8);
  EXPECT_EQ(read->count, 12u);
  EXPECT_EQ(read->text, "batch 1\n  and more\n");
}

TEST(ExplanationPage, WhateverElseIsThereIsNone) {
  const std::string head = ExplanationPage{"j", 0, 1, 0, {}}.head();
  for (const std::string& bytes :
       {std::string(), std::string("\n\n"), head, head + "12", head + "x\n", head + "1x\n",
        std::string("{}\n1\n"), std::string("[1]\n1\n"),
        std::string("{\"job\":1,\"rank\":0,\"size\":1}\n1\n"), std::string(300, '\0')})
    EXPECT_FALSE(ExplanationPage::parse(bytes)) << bytes;
}

}  // namespace
}  // namespace pushpull
