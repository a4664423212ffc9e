// Parts of the MPI backend by themselves: messages, letters, rendezvous, sums by MPI, and what
// becomes of errors that MPI returns (which no test can make happen, so they are faked).
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "backends/exchange/exchange.h"
#include "backends/mpi/mpi_collective.h"
#include "backends/mpi/mpi_error.h"
#include "backends/mpi/mpi_point_to_point.h"
#include "backends/mpi/mpi_process.h"
#include "backends/mpi/mpi_rendezvous.h"
#include "tests/mpi/mpi_groups.h"
#include "tests/support/reference.h"

namespace {
// What MPI_Testsome is to say next instead of asking MPI; 0: nothing.
std::atomic<int> fake_testsome{0};
}  // namespace

extern "C" __attribute__((visibility("default"))) int MPI_Testsome(int count, MPI_Request* requests,
                                                                   int* done, int* indices,
                                                                   MPI_Status* statuses) {
  const int code = fake_testsome.load();
  if (code == 0) return PMPI_Testsome(count, requests, done, indices, statuses);
  *done = 1;
  indices[0] = 0;
  statuses[0].MPI_ERROR = code;
  return MPI_ERR_IN_STATUS;
}

namespace pushpull::testing {
namespace {

using namespace std::chrono_literals;

class MpiParts : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(process_.start(deadline_in(60s)));
    auto mailbox = process_.mailbox(deadline_in(60s));
    ASSERT_TRUE(mailbox) << mailbox.error().message();
    mailbox_ = *mailbox;
    fake_testsome = 0;
    world_barrier();
  }
  void TearDown() override { world_barrier(); }

  std::unique_ptr<MpiPointToPoint> links(Duration patience = Duration::zero()) {
    const Group group = world_group("parts");
    std::vector<int> ranks(static_cast<size_t>(group.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    int tag = process_.draw_tag();
    MPI_Bcast(&tag, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return std::make_unique<MpiPointToPoint>(process_, mailbox_->communicator(), tag, ranks, group,
                                             patience);
  }
  int rank() const { return process_.rank(); }
  int size() const { return process_.size(); }
  int next() const { return (rank() + 1) % size(); }
  int before() const { return (rank() + size() - 1) % size(); }

  MpiProcess& process_ = MpiProcess::instance();
  MpiMailbox* mailbox_ = nullptr;
};

TEST_F(MpiParts, ManyMessagesOfAllSizesArriveInOrder) {
  auto link = links();
  ASSERT_TRUE(link->greet(deadline_in(60s)));
  std::mt19937 random(5);
  std::vector<std::vector<uint32_t>> sent, received;
  for (uint32_t i = 0; i < 200; ++i) {
    const size_t words = i % 10 == 0 ? 300'000 : random() % 3000;
    sent.emplace_back(words, i * 7919);
    received.emplace_back(words, 0);
  }
  std::vector<PointToPoint::Ticket> tickets;
  for (size_t i = 0; i < sent.size(); ++i) {
    auto out = link->send(next(), sent[i].data(), sent[i].size() * 4);
    auto in = link->recv(before(), received[i].data(), received[i].size() * 4);
    ASSERT_TRUE(out && in);
    tickets.push_back(*out);
    tickets.push_back(*in);
  }
  std::shuffle(tickets.begin(), tickets.end(), random);
  for (auto ticket : tickets) ASSERT_TRUE(link->wait(ticket));
  EXPECT_EQ(received, sent);
  for (auto ticket : tickets) EXPECT_TRUE(link->test(ticket).value_or(false));
}

TEST_F(MpiParts, AnotherLengthIsAMismatch) {
  if (size() < 2) return;  // one rank agrees with itself
  auto link = links();
  ASSERT_TRUE(link->greet(deadline_in(60s)));
  std::vector<char> bytes(100);
  ASSERT_TRUE(link->send(next(), bytes.data(), 60));
  auto ticket = link->recv(before(), bytes.data(), 80);
  ASSERT_TRUE(ticket);
  const auto ok = link->wait(*ticket);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code(), ErrorCode::kMismatch);
  EXPECT_NE(ok.error().message().find("sent 60 bytes over MPI where rank"), std::string::npos)
      << ok.error().message();
}

TEST_F(MpiParts, SilenceEndsAWaitByName) {
  if (size() < 2) return;
  auto link = links(200ms);
  ASSERT_TRUE(link->greet(deadline_in(60s)));
  char byte = 0;
  auto ticket = link->recv(next(), &byte, 1);
  ASSERT_TRUE(ticket);
  const auto ok = link->wait(*ticket);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(ok.error().rank(), next());
  EXPECT_NE(ok.error().message().find("sent nothing over MPI"), std::string::npos);
}

TEST_F(MpiParts, ARankThatDoesNotGreetIsNamed) {
  if (size() < 2) return;
  auto link = links();
  if (rank() == 1) {
    std::this_thread::sleep_for(500ms);
    return;
  }
  const auto ok = link->greet(deadline_in(300ms));
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(ok.error().rank(), 1);
}

TEST_F(MpiParts, WhatMpiReturnsEndsTheGroup) {
  if (size() < 2) return;
  auto link = links();
  ASSERT_TRUE(link->greet(deadline_in(60s)));
  char byte = 0;
  auto ticket = link->recv(next(), &byte, 1);
  ASSERT_TRUE(ticket);
  fake_testsome = MPI_ERR_OTHER;
  const auto ok = link->wait(*ticket);
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().code(), ErrorCode::kPeerLost);
  EXPECT_EQ(ok.error().rank(), next());
  EXPECT_NE(ok.error().message().find("receiving from rank"), std::string::npos);
  fake_testsome = 0;
  const auto later = link->send(next(), &byte, 1);
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().message(), ok.error().message());
}

// What was sent arrives although the sender makes no call: it waits for a file that the receiver
// makes.
TEST_F(MpiParts, AnIdleRankStillDelivers) {
  if (size() < 2) return;
  auto link = links();
  ASSERT_TRUE(link->greet(deadline_in(60s)));
  int64_t pid = getpid();
  MPI_Bcast(&pid, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
  const auto file = std::filesystem::temp_directory_path() / fmt::format("pushpull-idle-{}", pid);
  std::vector<char> bytes(900'000, 'x');
  if (rank() == 0) {
    auto ticket = link->send(1, bytes.data(), bytes.size());
    ASSERT_TRUE(ticket);
    const Deadline deadline = deadline_in(30s);
    while (!std::filesystem::exists(file) && Clock::now() < deadline)
      std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(std::filesystem::remove(file));
    EXPECT_TRUE(link->wait(*ticket));
  } else if (rank() == 1) {
    auto ticket = link->recv(0, bytes.data(), bytes.size());
    ASSERT_TRUE(ticket);
    EXPECT_TRUE(link->wait(*ticket));
    std::ofstream(file) << "here";
  }
  world_barrier();
}

TEST_F(MpiParts, LettersAreTakenBySenderAndSubject) {
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    ASSERT_TRUE(mailbox_->send(to, "second", "2"));
    ASSERT_TRUE(mailbox_->send(to, "first", std::string(30'000, 'a')));
    ASSERT_TRUE(mailbox_->send(to, "first", ""));
  }
  EXPECT_FALSE(mailbox_->send(0, "subject", std::string(100'000, 'a')));
  for (int from = 0; from < size(); ++from) {
    if (from == rank()) continue;
    EXPECT_EQ(mailbox_->take(from, "first", deadline_in(60s)), std::string(30'000, 'a'));
    EXPECT_EQ(mailbox_->take(from, "first", deadline_in(60s)), std::string());
    EXPECT_EQ(mailbox_->waiting(from), std::vector<std::string>{"second"});
    EXPECT_EQ(mailbox_->take(from, "second", deadline_in(60s)), std::string("2"));
    EXPECT_EQ(mailbox_->take(from, "third", deadline_in(20ms)), std::nullopt);
  }
}

TEST_F(MpiParts, RendezvousTellsAllRanksOfRankZero) {
  const auto rendezvous = make_mpi_rendezvous(process_, "digits");
  EXPECT_TRUE(rendezvous->trusted());
  EXPECT_EQ(rendezvous->description(), "MPI");
  Advert advert;
  advert.run = "a1";
  advert.size = size();
  advert.endpoint = "10.0.0.1:4000";
  advert.secret = "xyz";
  advert.host = "node";
  advert.pid = 7;
  if (rank() == 0) {
    ASSERT_TRUE(rendezvous->publish(advert, deadline_in(60s)));
    advert.run = "b2";
    ASSERT_TRUE(rendezvous->publish(advert, deadline_in(60s)));
    EXPECT_TRUE(rendezvous->still_current(deadline_in(1s)));
    rendezvous->withdraw();
    return;
  }
  // The first turned out to lead nowhere.
  const auto found = rendezvous->find("a1", deadline_in(60s));
  ASSERT_TRUE(found) << found.error().message();
  EXPECT_EQ(found->run, "b2");
  EXPECT_EQ(found->secret, "xyz");
  EXPECT_EQ(found->endpoint, "10.0.0.1:4000");
  const auto nothing = rendezvous->find("b2", deadline_in(50ms));
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code(), ErrorCode::kTimeout);
  EXPECT_EQ(nothing.error().rank(), 0);
}

// Sums by MPI: right up to rounding, whatever is packed with what.
TEST_F(MpiParts, SumsByMpiAreRight) {
  Settings settings;
  settings.exchange = "mpi";
  const Group group = world_group("parts");
  auto made = make_mpi_collective(process_, make_exchange(links(), settings), group, settings,
                                  deadline_in(60s));
  ASSERT_TRUE(made) << made.error().message();
  Collective& collective = **made;
  struct Tensor {
    DType dtype;
    size_t count;
    Bytes data;
    Bytes expected;
  };
  std::vector<Tensor> tensors;
  uint32_t seed = 0;
  for (size_t count : {size_t{0}, size_t{1}, size_t{77}, size_t{4099}, size_t{1'500'000}})
    for (DType dtype : kAllDTypes) {
      std::vector<Bytes> in;
      ++seed;
      for (int r = 0; r < size(); ++r) in.push_back(make_input(dtype, count, r, seed));
      tensors.push_back({dtype, count, in[static_cast<size_t>(rank())],
                         reference_sum(dtype, count, in, {}, Rounding16::kEachAddition)});
    }
  std::vector<Part> parts;
  for (Tensor& t : tensors)
    parts.push_back(
        {t.data.data(), t.data.data(), t.dtype, t.count, 0, slice_length(t.count, size())});
  std::vector<int> done(parts.size());
  const auto ok = collective.allreduce(parts, {}, [&](size_t i) { ++done[i]; });
  ASSERT_TRUE(ok) << ok.error().message();
  EXPECT_EQ(done, std::vector<int>(parts.size(), 1));
  for (const Tensor& t : tensors) {
    // With two ranks there is one addition, so bits are the same; with more, floats may differ.
    const bool exact = size() <= 2 || t.dtype == DType::kInt8 || t.dtype == DType::kUint8 ||
                       t.dtype == DType::kInt32 || t.dtype == DType::kInt64;
    EXPECT_TRUE(!exact || t.data == t.expected) << to_string(t.dtype) << " x " << t.count;
  }
  // Floats whose sums are exact in any order, in pieces and scaled.
  std::vector<float> values(100'000, static_cast<float>(rank() + 1));
  const size_t length = slice_length(values.size(), size());
  Part piece{values.data(), values.data(), DType::kFloat32, values.size(), 0, length / 3};
  ASSERT_TRUE(collective.allreduce({&piece, 1}, {2.0, 0.25}, [](size_t) {}));
  piece.begin = piece.end;
  piece.end = length;
  ASSERT_TRUE(collective.allreduce({&piece, 1}, {2.0, 0.25}, [](size_t) {}));
  const auto sum = static_cast<float>(size() * (size() + 1)) / 4;
  EXPECT_EQ(values, std::vector<float>(values.size(), sum));
  EXPECT_TRUE(collective.barrier());
}

TEST_F(MpiParts, AbortEndsASumByMpi) {
  if (size() < 2) return;
  Settings settings;
  const Group group = world_group("parts");
  auto made = make_mpi_collective(process_, make_exchange(links(), settings), group, settings,
                                  deadline_in(60s));
  ASSERT_TRUE(made) << made.error().message();
  std::vector<float> values(1000, 1.0f);
  const Part part{
      values.data(), values.data(), DType::kFloat32, 1000, 0, slice_length(1000, size())};
  Collective& collective = **made;
  std::jthread later([&] {
    std::this_thread::sleep_for(50ms);
    collective.abort(Error(ErrorCode::kAborted, "the test says so"));
  });
  if (rank() == 0) return;  // does not come
  const auto ok = collective.allreduce({&part, 1}, {}, [](size_t) {});
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().message(), "the test says so");
  EXPECT_FALSE(collective.barrier());
}

TEST(MpiError, SaysWhatMpiSays) {
  const Error lost = mpi_error(MPI_ERR_OTHER, "receiving from rank 3");
  EXPECT_EQ(lost.code(), ErrorCode::kPeerLost);
  EXPECT_EQ(lost.message().rfind("receiving from rank 3 failed: MPI_ERR_OTHER", 0), 0u)
      << lost.message();
  EXPECT_EQ(mpi_error(MPI_ERR_COMM, "x").code(), ErrorCode::kUnavailable);
  EXPECT_TRUE(check_mpi(MPI_SUCCESS, "x"));
}

}  // namespace
}  // namespace pushpull::testing

int main(int argc, char** argv) {
  int level = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  ::testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  pushpull::testing::world_barrier();
  MPI_Finalize();
  return failed;
}
