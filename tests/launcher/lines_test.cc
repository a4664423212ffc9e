#include "launcher/lines.h"

#include <gtest/gtest.h>

namespace pushpull::launcher {
namespace {

// What comes out when `text` arrives in pieces of `size` bytes.
std::string tagged(const std::string& text, size_t size, bool finish = true) {
  LineTagger tagger("[1] ");
  std::string out;
  for (size_t i = 0; i < text.size(); i += size) tagger.feed(text.substr(i, size), out);
  if (finish) tagger.finish(out);
  return out;
}

TEST(LineTagger, PiecesDoNotMatter) {
  const std::string text = "first\n\nthird, longer\r\n10%\r50%\r100%\nlast without newline";
  for (size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(tagged(text, size),
              "[1] first\n[1] \n[1] third, longer\n[1] 100%\n[1] last without newline\n")
        << size;
  }
}

TEST(LineTagger, HoldsBackWhatIsNotALineYet) {
  EXPECT_EQ(tagged("a\nb", 1, false), "[1] a\n");
  EXPECT_EQ(tagged("", 1), "");
}

TEST(LineTagger, OpenLineIsWhatATerminalWouldShow) {
  LineTagger tagger("[1] ");
  std::string out;
  EXPECT_EQ(tagger.open_line(), "");
  tagger.feed("\r 10%", out);
  EXPECT_EQ(tagger.open_line(), "[1]  10%");
  EXPECT_TRUE(tagger.is_progress());
  EXPECT_TRUE(tagger.take_open_line_changed());
  EXPECT_FALSE(tagger.take_open_line_changed());
  tagger.feed("\r 20%\r", out);
  EXPECT_EQ(tagger.open_line(), "[1]  20%");
  tagger.feed("\n", out);
  EXPECT_EQ(out, "[1]  20%\n");
  EXPECT_EQ(tagger.open_line(), "");
  EXPECT_FALSE(tagger.is_progress());
  EXPECT_TRUE(tagger.take_open_line_changed());
}

TEST(LineTagger, PlainTextIsNoProgress) {
  LineTagger tagger("[1] ");
  std::string out;
  tagger.feed("loading", out);
  EXPECT_FALSE(tagger.is_progress());
}

TEST(LineTagger, ProgressForDaysTakesNoMemory) {
  LineTagger tagger("[1] ");
  std::string out;
  for (int i = 0; i < 1'000'000; ++i) tagger.feed("\r some percent done", out);
  tagger.finish(out);
  EXPECT_EQ(out, "[1]  some percent done\n");
}

TEST(LineTagger, ZeroBytesPass) {
  const std::string text("a\0b\n", 4);
  EXPECT_EQ(tagged(text, 4), std::string("[1] a\0b\n", 8));
}

}  // namespace
}  // namespace pushpull::launcher
