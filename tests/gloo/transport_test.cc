// The transport itself: order, lengths, nonsense, closing, aborting, several waiters.
#include <gloo/common/error.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "backends/gloo/gloo_point_to_point.h"
#include "tests/gloo/gloo_ranks.h"

namespace pushpull::testing {
namespace {

using namespace std::chrono_literals;
using transport::Header;
using transport::kNoOffset;
using transport::RecvOp;
using transport::SendOp;
using transport::Wire;

using Bytes = std::vector<char>;

Bytes pattern(size_t length, unsigned seed) {
  Bytes bytes(length);
  std::minstd_rand random(seed + 1);
  for (char& b : bytes) b = static_cast<char>(random());
  return bytes;
}

// Wires of a group in one thread: nothing here blocks unless it waits.
std::vector<std::unique_ptr<Wire>> make_wires(int n) {
  LoopbackNetwork network(n);
  std::vector<std::unique_ptr<Wire>> wires;
  for (int rank = 0; rank < n; ++rank) {
    auto sockets = network.group(rank).mesh->connect(never());
    EXPECT_TRUE(sockets);
    std::vector<transport::Peer> peers;
    for (int r = 0; r < n; ++r)
      peers.push_back({"rank " + std::to_string(r), "host " + std::to_string(r)});
    auto wire = Wire::create(rank, std::move(*sockets), std::move(peers));
    EXPECT_TRUE(wire);
    wires.push_back(std::move(*wire));
  }
  return wires;
}

Result<void> send(Wire& wire, int to, uint64_t slot, const Bytes& bytes) {
  SendOp op;
  op.header.slot = slot;
  op.header.length = bytes.size();
  op.from = bytes.data();
  return wire.send(to, std::move(op));
}

Result<void> recv(Wire& wire, int from, uint64_t slot, Bytes& bytes) {
  RecvOp op;
  op.slot = slot;
  op.to = bytes.data();
  op.length = bytes.size();
  return wire.recv(from, std::move(op));
}

// One wire whose only peer is a bare socket.
struct HalfWire {
  HalfWire() {
    auto pair = loopback_pair();
    EXPECT_TRUE(pair);
    std::vector<Socket> sockets(2);
    sockets[1] = std::move(pair->first);
    peer = std::move(pair->second);
    auto made = Wire::create(0, std::move(sockets), {{"rank 0", "a"}, {"rank 1", "b"}});
    EXPECT_TRUE(made);
    wire = std::move(*made);
  }
  void write(const void* bytes, size_t length) {
    ASSERT_EQ(::send(peer.fd(), bytes, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
  }
  Error failure(uint64_t count = 1) {
    auto got = wire->wait_received(1, count, deadline_in(10s));
    EXPECT_FALSE(got);
    return got ? Error(ErrorCode::kTimeout, "nothing failed") : got.error();
  }

  std::unique_ptr<Wire> wire;
  Socket peer;
};

TEST(Transport, ReceivesInAnotherOrderThanSends) {
  auto wires = make_wires(2);
  std::vector<Bytes> out, in;
  for (unsigned i = 0; i < 9; ++i) {
    out.push_back(pattern(i % 3 == 0 ? 0 : 100000 * i, i));
    in.emplace_back(out.back().size());
  }
  std::jthread sender([&] {
    for (size_t i = 0; i < out.size(); ++i) ASSERT_TRUE(send(*wires[0], 1, i, out[i]));
    EXPECT_TRUE(wires[0]->wait_sent(1, out.size(), deadline_in(30s)).value_or(false));
  });
  for (size_t i = out.size(); i-- > 0;) {
    ASSERT_TRUE(recv(*wires[1], 0, i, in[i]));
    ASSERT_TRUE(wires[1]->wait_received(0, out.size() - i, deadline_in(30s)).value_or(false));
    EXPECT_EQ(in[i], out[i]);
  }
}

TEST(Transport, AMessageWithoutAReceiveHoldsItsSenderBack) {
  auto wires = make_wires(2);
  const Bytes out = pattern(64u << 20, 1);
  Bytes in(out.size());
  ASSERT_TRUE(send(*wires[0], 1, 7, out));
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(wires[1]->test_received(0, 1).value_or(true));
    EXPECT_FALSE(wires[0]->test_sent(1, 1).value_or(true)) << "it went somewhere";
  }
  ASSERT_TRUE(recv(*wires[1], 0, 7, in));
  std::jthread sender([&] { EXPECT_TRUE(wires[0]->wait_sent(1, 1, deadline_in(30s))); });
  ASSERT_TRUE(wires[1]->wait_received(0, 1, deadline_in(30s)).value_or(false));
  EXPECT_EQ(in, out);
}

TEST(Transport, MessagesOfOneSlotKeepTheirOrder) {
  auto wires = make_wires(2);
  std::vector<Bytes> out, in;
  for (unsigned i = 0; i < 6; ++i) {
    out.push_back(pattern(1000, i));
    in.emplace_back(1000);
  }
  const Bytes other = pattern(10, 99);
  Bytes other_in(10);
  for (const Bytes& bytes : out) ASSERT_TRUE(send(*wires[0], 1, 3, bytes));
  ASSERT_TRUE(send(*wires[0], 1, 4, other));
  // Waiting for the last one puts the others aside.
  ASSERT_TRUE(recv(*wires[1], 0, 4, other_in));
  ASSERT_TRUE(wires[1]->wait_received(0, 1, deadline_in(10s)).value_or(false));
  for (Bytes& bytes : in) ASSERT_TRUE(recv(*wires[1], 0, 3, bytes));
  ASSERT_TRUE(wires[1]->wait_received(0, 7, deadline_in(10s)).value_or(false));
  EXPECT_EQ(in, out);
}

TEST(Transport, ReceivesFromWhoeverComesFirst) {
  auto wires = make_wires(3);
  const Bytes one = pattern(500, 1), two = pattern(500, 2);
  Bytes first(500), second(500);
  ASSERT_TRUE(send(*wires[2], 0, 5, two));
  RecvOp op;
  op.slot = 5;
  op.length = 500;
  op.to = first.data();
  ASSERT_TRUE(wires[0]->recv_any({1, 2}, op));
  ASSERT_TRUE(wires[0]->wait_received(2, 1, deadline_in(10s)).value_or(false));
  EXPECT_EQ(first, two);
  op.to = second.data();
  ASSERT_TRUE(wires[0]->recv_any({1, 2}, op));
  ASSERT_TRUE(send(*wires[1], 0, 5, one));
  ASSERT_TRUE(wires[0]->wait_received(1, 1, deadline_in(10s)).value_or(false));
  EXPECT_EQ(second, one);
}

// Every rank sends every other messages of random slots and lengths; they are received in a random
// order.
TEST(Transport, AnyOrderOfAnything) {
  constexpr int kRanks = 3;
  constexpr size_t kMessages = 60;
  for (unsigned seed = 0; seed < 8; ++seed) {
    auto wires = make_wires(kRanks);
    run_ranks(kRanks, [&](int rank) {
      std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
      const auto length = [&](int from, int to, size_t i) {
        std::minstd_rand lengths(static_cast<unsigned>(seed * 1000 + i * 10) +
                                 static_cast<unsigned>(from * 3 + to));
        lengths();
        return lengths() % (i % 5 == 0 ? 300000 : 3000);
      };
      std::vector<Bytes> out;
      std::vector<std::pair<int, size_t>> receives;
      for (int peer = 0; peer < kRanks; ++peer)
        for (size_t i = 0; peer != rank && i < kMessages; ++i) {
          out.push_back(pattern(length(rank, peer, i), static_cast<unsigned>(i) + seed));
          ASSERT_TRUE(send(*wires[static_cast<size_t>(rank)], peer, i, out.back()));
          receives.emplace_back(peer, i);
        }
      std::shuffle(receives.begin(), receives.end(), random);
      std::vector<Bytes> in;
      std::vector<uint64_t> counts(kRanks);
      for (const auto& [peer, i] : receives) in.emplace_back(length(peer, rank, i));
      Wire& wire = *wires[static_cast<size_t>(rank)];
      for (size_t r = 0; r < receives.size(); ++r) {
        const auto [peer, i] = receives[r];
        ASSERT_TRUE(recv(wire, peer, i, in[r]));
        ++counts[static_cast<size_t>(peer)];
        if (random() % 3 != 0) continue;
        ASSERT_TRUE(wire.wait_received(peer, counts[static_cast<size_t>(peer)], deadline_in(30s))
                        .value_or(false));
      }
      for (int peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        ASSERT_TRUE(wire.wait_received(peer, kMessages, deadline_in(30s)).value_or(false));
        ASSERT_TRUE(wire.wait_sent(peer, kMessages, deadline_in(30s)).value_or(false));
      }
      for (size_t r = 0; r < receives.size(); ++r)
        EXPECT_EQ(in[r], pattern(in[r].size(), static_cast<unsigned>(receives[r].second) + seed));
    });
  }
}

// --- nonsense on the wire
// ----------------------------------------------------------------------------

TEST(Transport, RefusesWhatIsNotAMessage) {
  HalfWire half;
  Bytes in(10);
  ASSERT_TRUE(recv(*half.wire, 1, 0, in));
  half.write(Bytes(64, 'x').data(), 64);
  const Error error = half.failure();
  EXPECT_EQ(error.code(), ErrorCode::kAborted);
  EXPECT_EQ(error.rank(), 1);
  EXPECT_FALSE(send(*half.wire, 1, 0, in)) << "the failure stays";
}

TEST(Transport, RefusesAnotherLengthThanExpected) {
  HalfWire half;
  Bytes in(10, 'a');
  ASSERT_TRUE(recv(*half.wire, 1, 0, in));
  Header header;
  header.length = 11;
  half.write(&header, sizeof header);
  EXPECT_EQ(half.failure().message(),
            "this rank and rank 1 disagree: its message has length 11 where 10 was expected");
  EXPECT_EQ(in, Bytes(10, 'a'));
}

TEST(Transport, RefusesToPutTooMuchAside) {
  HalfWire half;
  Bytes in(10);
  ASSERT_TRUE(recv(*half.wire, 1, 0, in));
  Header header;
  header.slot = 1;
  header.length = transport::kMaxAside + 1;
  half.write(&header, sizeof header);
  EXPECT_EQ(half.failure().code(), ErrorCode::kAborted);
}

TEST(Transport, RefusesToWriteBeyondATarget) {
  for (const auto& [offset, length] :
       {std::pair<uint64_t, uint64_t>{90, 11}, {101, 0}, {~0ull - 1, 5}}) {
    HalfWire half;
    Bytes memory(100);
    ASSERT_TRUE(half.wire->add_target(1, 6, {memory.data(), memory.size(), nullptr}));
    Header header;
    header.slot = 6;
    header.offset = offset;
    header.length = length;
    half.write(&header, sizeof header);
    EXPECT_EQ(half.failure().code(), ErrorCode::kAborted);
  }
}

TEST(Transport, APeerThatClosesInTheMiddleIsLost) {
  HalfWire half;
  Bytes in(1000);
  ASSERT_TRUE(recv(*half.wire, 1, 0, in));
  Header header;
  header.length = in.size();
  half.write(&header, sizeof header);
  half.write(in.data(), 500);
  half.peer.close();
  const Error error = half.failure();
  EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  EXPECT_EQ(error.rank(), 1);
  EXPECT_EQ(error.host(), "b");
  EXPECT_EQ(error.message(), "rank 1 was lost: it closed its connection");
}

TEST(Transport, AWaitThatAClosedMemberCannotHelpEnds) {
  auto wires = make_wires(3);
  Bytes in(10);
  ASSERT_TRUE(recv(*wires[0], 1, 0, in));
  wires[2].reset();  // nothing is expected of it, but it is gone, and rank 1 waits for it perhaps
  auto got = wires[0]->wait_received(1, 1, deadline_in(20s));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), ErrorCode::kPeerLost);
  EXPECT_EQ(got.error().rank(), 2);
}

TEST(Transport, WhatWasSentBeforeClosingArrives) {
  auto wires = make_wires(2);
  const Bytes out = pattern(50000, 3);
  Bytes in(out.size());
  ASSERT_TRUE(send(*wires[0], 1, 0, out));
  ASSERT_TRUE(wires[0]->wait_sent(1, 1, deadline_in(10s)).value_or(false));
  wires[0].reset();
  ASSERT_TRUE(recv(*wires[1], 0, 0, in));
  ASSERT_TRUE(wires[1]->wait_received(0, 1, deadline_in(10s)).value_or(false));
  EXPECT_EQ(in, out);
}

// --- waiting
// -----------------------------------------------------------------------------------------

TEST(Transport, AWaitHasADeadline) {
  auto wires = make_wires(2);
  Bytes in(10);
  ASSERT_TRUE(recv(*wires[0], 1, 0, in));
  const auto got = wires[0]->wait_received(1, 1, deadline_in(30ms));
  ASSERT_TRUE(got);
  EXPECT_FALSE(*got);
  // The receive is still there.
  ASSERT_TRUE(send(*wires[1], 0, 0, pattern(10, 1)));
  EXPECT_TRUE(wires[0]->wait_received(1, 1, deadline_in(10s)).value_or(false));
}

TEST(Transport, PatienceEndsWithATimeoutThatNamesThePeer) {
  run_gloo(2, [](std::shared_ptr<GlooContext> context) {
    if (context->rank == 1) return;
    GlooPointToPoint links(context, 50ms);
    Bytes in(10);
    auto ticket = links.recv(1, in.data(), in.size());
    ASSERT_TRUE(ticket);
    EXPECT_FALSE(links.test(*ticket).value_or(true));
    const auto ok = links.wait(*ticket);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().code(), ErrorCode::kTimeout);
    EXPECT_EQ(ok.error().rank(), 1);
    EXPECT_FALSE(links.send(1, in.data(), 1)) << "the failure stays";
  });
}

TEST(Transport, AbortWakesAllThatWait) {
  auto wires = make_wires(2);
  std::vector<Bytes> in(4, Bytes(10));
  std::vector<std::jthread> waiters;
  std::atomic<int> woken{0};
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(recv(*wires[0], 1, i, in[i]));
    waiters.emplace_back([&, i] {
      auto got = wires[0]->wait_received(1, i + 1, deadline_in(20s));
      ASSERT_FALSE(got);
      EXPECT_EQ(got.error().message(), "enough");
      ++woken;
    });
  }
  std::this_thread::sleep_for(20ms);
  wires[0]->abort(Error(ErrorCode::kAborted, "enough"));
  wires[0]->abort(Error(ErrorCode::kAborted, "not this one"));
  waiters.clear();
  EXPECT_EQ(woken, 4);
}

// What a peer sends after an abort is a consequence of it as often as not.
TEST(Transport, AnAbortIsTheReasonWhateverComesAfterIt) {
  HalfWire half;
  Bytes in(10, 'a');
  ASSERT_TRUE(recv(*half.wire, 1, 0, in));
  // Between the wire's look at the abort and its look at the peer.
  bool first = true;
  const auto between = [&] {
    if (std::exchange(first, false)) {
      half.wire->abort(Error(ErrorCode::kAborted, "enough"));
      Header header;
      header.length = 11;
      half.write(&header, sizeof header);
    }
    return false;
  };
  const auto got = half.wire->wait(between, deadline_in(10s));
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().message(), "enough");
  EXPECT_EQ(half.failure().message(), "enough");
}

TEST(Transport, WhoeverWaitsReceivesForAll) {
  auto wires = make_wires(2);
  constexpr uint64_t kCount = 200;
  std::vector<Bytes> in(kCount, Bytes(2000));
  std::vector<std::jthread> waiters;
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(recv(*wires[0], 1, i, in[i]));
  for (uint64_t t = 0; t < 4; ++t)
    waiters.emplace_back([&, t] {
      for (uint64_t i = t; i < kCount; i += 4)
        EXPECT_TRUE(wires[0]->wait_received(1, i + 1, deadline_in(20s)).value_or(false));
    });
  std::vector<Bytes> out;
  for (unsigned i = 0; i < kCount; ++i) out.push_back(pattern(2000, i));
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_TRUE(send(*wires[1], 0, i, out[i]));
  waiters.clear();
  EXPECT_EQ(in, out);
}

// --- Gloo's buffers
// ----------------------------------------------------------------------------------

TEST(UnboundBuffer, AbortedWaitsReturnFalse) {
  run_gloo(2, [](std::shared_ptr<GlooContext> context) {
    if (context->rank == 1) return;
    Bytes in(10);
    auto buffer = context->createUnboundBuffer(in.data(), in.size());
    buffer->recv(1, 0);
    std::jthread aborter([&] {
      std::this_thread::sleep_for(20ms);
      buffer->abortWaitRecv();
      buffer->abortWaitSend();
    });
    EXPECT_FALSE(buffer->waitRecv());
    EXPECT_FALSE(buffer->waitSend());
    EXPECT_THROW(buffer->waitRecv(10ms), gloo::IoException);
  });
}

TEST(UnboundBuffer, OneThatGoesAwayTakesItsReceiveAlong) {
  run_gloo(2, [](std::shared_ptr<GlooContext> context) {
    Bytes kept = pattern(100000, 5), gone = pattern(3000000, 6);
    if (context->rank == 0) {
      auto first = context->createUnboundBuffer(gone.data(), gone.size());
      auto second = context->createUnboundBuffer(kept.data(), kept.size());
      first->send(1, 1);
      second->send(1, 2);
      EXPECT_TRUE(first->waitSend());
      EXPECT_TRUE(second->waitSend());
      return;
    }
    Bytes in(gone.size(), 'z'), after(kept.size());
    {
      auto buffer = context->createUnboundBuffer(in.data(), in.size());
      buffer->recv(0, 1);
      // Somewhere in the middle of it.
      const auto begun = [&] { return in[0] == gone[0]; };
      EXPECT_TRUE(context->wire().wait(begun, deadline_in(20s)).value_or(false));
    }
    std::fill(in.begin(), in.end(), 'z');
    auto buffer = context->createUnboundBuffer(after.data(), after.size());
    buffer->recv(0, 2);
    EXPECT_TRUE(buffer->waitRecv());
    EXPECT_EQ(after, kept);
    EXPECT_EQ(std::count(in.begin(), in.end(), 'z'), static_cast<ptrdiff_t>(in.size()));
  });
}

TEST(UnboundBuffer, OneThatGoesAwayStillSendsWhatItStarted) {
  run_gloo(2, [](std::shared_ptr<GlooContext> context) {
    const Bytes expected = pattern(30000000, 7);
    if (context->rank == 0) {
      {
        Bytes out = expected;
        auto buffer = context->createUnboundBuffer(out.data(), out.size());
        buffer->send(1, 1);
      }
      // Whoever waits for anything moves it.
      char last = 0;
      auto buffer = context->createUnboundBuffer(&last, 1);
      buffer->recv(1, 2);
      EXPECT_TRUE(buffer->waitRecv());
      return;
    }
    Bytes in(expected.size());
    auto buffer = context->createUnboundBuffer(in.data(), in.size());
    buffer->recv(0, 1);
    EXPECT_TRUE(buffer->waitRecv());
    EXPECT_EQ(in, expected);
    auto answer = context->createUnboundBuffer(in.data(), 1);
    answer->send(0, 2);
    EXPECT_TRUE(answer->waitSend());
  });
}

TEST(UnboundBuffer, ReceivesFromAnyOfSeveral) {
  run_gloo(4, [](std::shared_ptr<GlooContext> context) {
    int value = context->rank;
    auto buffer = context->createUnboundBuffer(&value, sizeof value);
    if (context->rank != 0) {
      buffer->send(0, 9);
      EXPECT_TRUE(buffer->waitSend());
      return;
    }
    std::vector<int> seen;
    for (int i = 1; i < 4; ++i) {
      buffer->recv({1, 2, 3}, 9);
      int from = -1;
      EXPECT_TRUE(buffer->waitRecv(&from));
      EXPECT_EQ(value, from);
      seen.push_back(from);
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<int>{1, 2, 3}));
  });
}

TEST(Device, HasConnectionsForOneContext) {
  run_gloo(1, [](std::shared_ptr<GlooContext> context) {
    EXPECT_THROW(context->getDevice()->createContext(0, 1), gloo::InvalidOperationException);
  });
}

}  // namespace
}  // namespace pushpull::testing
