// The ring through which ranks of one host exchange control frames.
#include "core/control/mailbox.h"

#include <memory>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

class Mailbox : public ::testing::Test {
 protected:
  std::shared_ptr<MailboxMemory> memory_ = std::make_shared<MailboxMemory>();
  std::string got_;
  MailboxWriter writer_{*memory_, memory_};
  MailboxReader reader_{*memory_, memory_, [this](std::string_view bytes) -> Result<size_t> {
                          got_.append(bytes);
                          return bytes.size();
                        }};
};

TEST_F(Mailbox, WakesASleepingReaderOnce) {
  EXPECT_TRUE(writer_.write("a").wake);
  EXPECT_FALSE(writer_.write("b").wake);
  EXPECT_TRUE(*reader_.drain());
  EXPECT_EQ(got_, "ab");
  EXPECT_TRUE(writer_.write("c").wake);
  EXPECT_TRUE(*reader_.try_drain());
  EXPECT_FALSE(*reader_.try_drain());
  EXPECT_EQ(got_, "abc");
}

TEST_F(Mailbox, LetsAWatchingReaderBe) {
  reader_.watch(true);
  EXPECT_FALSE(writer_.write("a").wake);
  reader_.watch(false);
  EXPECT_TRUE(*reader_.drain());
  EXPECT_TRUE(writer_.write("b").wake);
}

TEST_F(Mailbox, KeepsWhatDoesNotFit) {
  const std::string much(MailboxMemory::kBytes * 2 + 17, 'x');
  const auto after = writer_.write(much + "y");
  EXPECT_TRUE(after.wake);
  EXPECT_TRUE(after.retry);
  EXPECT_TRUE(writer_.write("z").retry);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(*reader_.drain());
    EXPECT_EQ(writer_.write({}).retry, i < 1) << i;
  }
  ASSERT_FALSE(*reader_.drain());
  EXPECT_EQ(got_, much + "yz");
}

TEST_F(Mailbox, ReadsAFrameThatComesInPieces) {
  std::string frames;
  MailboxReader reader(*memory_, memory_, [&](std::string_view bytes) -> Result<size_t> {
    if (bytes.size() < 4) return size_t{0};
    frames.append(bytes.substr(0, 4)).append("|");
    return size_t{4};
  });
  (void)writer_.write("abc");
  ASSERT_TRUE(*reader.drain());
  EXPECT_EQ(frames, "");
  (void)writer_.write("d");
  ASSERT_TRUE(*reader.drain());
  EXPECT_EQ(frames, "abcd|");
}

TEST_F(Mailbox, HandsOnEverythingThatIsThere) {
  std::string frames;
  MailboxReader reader(*memory_, memory_, [&](std::string_view bytes) -> Result<size_t> {
    frames.append(bytes.substr(0, 1)).append("|");  // one at a time
    return size_t{1};
  });
  (void)writer_.write("abc");
  ASSERT_TRUE(*reader.drain());
  EXPECT_EQ(frames, "a|b|c|");
}

TEST_F(Mailbox, DoesNotDrainWithinItself) {
  MailboxReader* again = nullptr;
  int calls = 0;
  MailboxReader reader(*memory_, memory_, [&](std::string_view bytes) -> Result<size_t> {
    ++calls;
    EXPECT_FALSE(*again->drain());
    return bytes.size();
  });
  again = &reader;
  (void)writer_.write("a");
  EXPECT_TRUE(*reader.drain());
  EXPECT_EQ(calls, 1);
}

TEST_F(Mailbox, DoesNotBelieveCounters) {
  memory_->written = MailboxMemory::kBytes + 1;
  EXPECT_FALSE(reader_.drain());
  memory_->taken = 99;  // more than was ever written
  EXPECT_TRUE(writer_.write("a").retry);
}

TEST_F(Mailbox, RefusesToQueueWithoutEnd) {
  const std::string much(size_t{33} << 20, 'x');
  EXPECT_FALSE(writer_.write(much).stuck);
  EXPECT_TRUE(writer_.write(much).stuck);
}

// The writer sends, the reader watches now and then and sleeps in between: no wake-up may be lost.
TEST_F(Mailbox, LosesNothingBetweenThreads) {
  constexpr int kBytes = 300'000;
  std::atomic<int> wake_ups = 0;
  std::atomic<bool> ended = false;
  std::jthread writer([&] {
    std::mt19937 random(7);
    for (int i = 0; i < kBytes;) {
      std::string bytes;
      for (size_t n = 1 + random() % 40; n > 0 && i < kBytes; --n, ++i)
        bytes.push_back(static_cast<char>(i));
      auto after = writer_.write(bytes);
      for (;; after = writer_.write({})) {
        if (after.wake) ++wake_ups;
        if (!after.retry) break;
        std::this_thread::yield();
      }
    }
    ended = true;
  });
  int seen = 0;
  std::mt19937 random(11);
  while (got_.size() < kBytes) {
    if (random() % 2 == 0) {
      reader_.watch(true);
      for (int i = 0; i < 20; ++i) ASSERT_TRUE(reader_.try_drain());
      reader_.watch(false);
      ASSERT_TRUE(reader_.drain());
    }
    // Asleep: only a wake-up makes it look again.
    while (wake_ups == seen && !(ended && wake_ups == seen)) std::this_thread::yield();
    if (wake_ups == seen) break;
    ++seen;
    ASSERT_TRUE(reader_.drain());
  }
  writer.join();
  ASSERT_EQ(got_.size(), static_cast<size_t>(kBytes));
  for (int i = 0; i < kBytes; ++i)
    ASSERT_EQ(got_[static_cast<size_t>(i)], static_cast<char>(i)) << i;
}

}  // namespace
}  // namespace pushpull
