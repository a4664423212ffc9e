// Ranks share memory only after they proved that they do; what goes wrong on the way.
#include "backends/shm/shm_proof.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "tests/shm/impostor.h"
#include "tests/support/loopback.h"

namespace pushpull {
namespace {

using namespace pushpull::testing;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Shared = Result<std::unique_ptr<ShmSegment>>;

constexpr size_t kChunk = 64u << 10;

class ShmProof : public ::testing::Test {
 protected:
  Group group(int rank) { return network_.group(rank); }
  std::future<Shared> rank(Group group, Duration patience = seconds(20), size_t chunk = kChunk) {
    return std::async(std::launch::async, [g = std::move(group), patience, chunk] {
      return share_memory(g, chunk, deadline_in(patience));
    });
  }
  // The name at which this group's first rank listens.
  std::string name() {
    auto first = rank(group(0), milliseconds(500));
    const std::string found = listening_name(deadline_in(seconds(10)));
    EXPECT_FALSE(first.get());
    return found;
  }
  // What rank 1 says about a first rank that hands it this memory, which is not shared.
  std::string said_about_memory(int descriptor) {
    const Socket listener = listen_at(name());
    EXPECT_TRUE(listener.valid());
    auto guest = rank(group(1), seconds(3));
    const Socket connection = pretend_to_host(listener, group(0), descriptor);
    const auto shared = guest.get();
    return shared ? std::string() : shared.error().message();
  }

  LoopbackNetwork network_{2};
};

void expect_works(const Shared& first, const Shared& second) {
  ASSERT_TRUE(first) << first.error().message();
  ASSERT_TRUE(second) << second.error().message();
  (*first)->signals(0).put.value = 4711;
  EXPECT_EQ((*second)->signals(0).put.value, 4711u);
  EXPECT_EQ((*first)->descriptor(), -1);
  EXPECT_EQ((*second)->descriptor(), -1);
}

// Complete, and with the way out.
void expect_said(const std::string& text, const std::string& words) {
  EXPECT_NE(text.find(words), std::string::npos) << text;
  EXPECT_NE(text.find("PUSHPULL_LOCAL=backend"), std::string::npos) << text;
}

TEST_F(ShmProof, TwoRanksShare) {
  auto second = rank(group(1));
  auto first = rank(group(0));
  expect_works(first.get(), second.get());
}

TEST_F(ShmProof, ARankThatDoesNotComeIsNamed) {
  const auto first = rank(group(0), milliseconds(300)).get();
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(first.error().rank(), 1);
  expect_said(first.error().message(), "rank 1 (host localhost, pid ");
  expect_said(first.error().message(), "did not come");
}

TEST_F(ShmProof, AFirstRankThatIsNotThereIsNamed) {
  const auto second = rank(group(1), milliseconds(300)).get();
  ASSERT_FALSE(second);
  expect_said(second.error().message(), "rank 0 (host localhost, pid ");
  expect_said(second.error().message(), "it does not answer on its Unix socket");
}

TEST_F(ShmProof, AnotherSecretMeetsNobody) {
  Group stranger = group(1);
  stranger.secret = "guessed";
  auto second = rank(stranger, milliseconds(500));
  auto first = rank(group(0), milliseconds(500));
  EXPECT_FALSE(second.get());
  EXPECT_FALSE(first.get());
}

TEST_F(ShmProof, WhoeverGivesUpEndsTheWaitOfAll) {
  for (int r = 0; r < 2; ++r) {
    Group alone = group(r);
    alone.given_up = [] { return Error(ErrorCode::kAborted, "rank 7 gave up"); };
    const auto shared = rank(alone).get();
    ASSERT_FALSE(shared);
    EXPECT_EQ(shared.error().message(), "rank 7 gave up");
  }
}

TEST_F(ShmProof, ChunksOfAnotherSizeAreNamed) {
  auto first = rank(group(0), seconds(2));
  const auto second = rank(group(1), seconds(20), 2 * kChunk).get();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), ErrorCode::kInvalidArgument);
  expect_said(second.error().message(), "PUSHPULL_SHM_CHUNK_BYTES");
  EXPECT_FALSE(first.get());
}

TEST_F(ShmProof, StrangersAtTheSocketDoNotDisturb) {
  auto first = rank(group(0));
  const std::string at = listening_name(deadline_in(seconds(10)));
  std::vector<Socket> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(call_at(at));
  const Socket rude = call_at(at);
  const std::string garbage(3000, '\xff');
  ::send(rude.fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  Group guesser = group(1);
  guesser.secret = "guessed";
  EXPECT_FALSE(pretend_to_be_guest(at, guesser).memory.valid());
  auto second = rank(group(1));
  expect_works(first.get(), second.get());
}

TEST_F(ShmProof, AGuestWhoseNumberIsNotInTheMemoryIsTurnedAway) {
  auto first = rank(group(0));
  const std::string at = listening_name(deadline_in(seconds(10)));
  const Guest guest = pretend_to_be_guest(at, group(1));
  ASSERT_TRUE(guest.memory.valid());
  const uint64_t number = 4711;  // only said, not written
  ::send(guest.connection.fd(), &number, sizeof number, MSG_NOSIGNAL);
  char answer = 0;
  EXPECT_EQ(::recv(guest.connection.fd(), &answer, 1, 0), 0) << "closed";
  auto second = rank(group(1));
  expect_works(first.get(), second.get());
}

TEST_F(ShmProof, MemoryThatIsNotTheFirstRanksIsFoundOut) {
  auto copy = ShmSegment::create(2, kChunk);
  ASSERT_TRUE(copy);
  expect_said(said_about_memory(copy->descriptor()), "its answer is not in the shared memory");
}

TEST_F(ShmProof, MemoryThatCouldShrinkIsRefused) {
  const Socket memory(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(memory.fd(), 4096), 0);
  expect_said(said_about_memory(memory.fd()), "not sealed");
}

TEST_F(ShmProof, NoMemoryAtAllIsSaid) {
  expect_said(said_about_memory(-1), "cannot share memory with rank 0");
}

}  // namespace
}  // namespace pushpull
