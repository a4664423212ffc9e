// A rank's link to the coordinator, with an end that the test holds.
#include "core/control/link.h"

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/control/io_thread.h"

namespace pushpull {
namespace {

using namespace std::chrono_literals;

class Link : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    coordinator_ = Socket(ends[1]);
    link_ = make_socket_link(io_, Socket(ends[0]), kLimit);
    link_->start({[this](const ToRank&) { ++messages_; },
                  [this](const std::string& why) { lost_.set_value(why); }});
    link_->share(0, {&(*boxes_)[0], &(*boxes_)[1], boxes_});
  }
  void TearDown() override {
    link_->close();
    io_.stop();
    link_.reset();
  }

  static constexpr auto kLimit = 500ms;
  using Boxes = std::array<MailboxMemory, 2>;
  std::shared_ptr<Boxes> boxes_ = std::make_shared<Boxes>();
  IoThread io_{"link-test"};
  Socket coordinator_;
  std::unique_ptr<ControlLink> link_;
  std::atomic<int> messages_ = 0;
  std::promise<std::string> lost_;
};

TEST_F(Link, ASilentCoordinatorIsLost) {
  link_->watch(true);
  auto lost = lost_.get_future();
  ASSERT_EQ(lost.wait_for(10s), std::future_status::ready);
  EXPECT_NE(lost.get().find("nothing was heard"), std::string::npos);
}

// Whoever watches is not woken through the connection, which stays silent then.
TEST_F(Link, ACoordinatorThatIsHeardThroughTheMailboxLives) {
  MailboxWriter writer((*boxes_)[0], boxes_);
  link_->watch(true);
  std::string frame;
  encode(ToRank(CoordinatorHeartbeat{}), &frame);
  auto lost = lost_.get_future();
  for (int i = 0; i < 300; ++i) {
    ASSERT_FALSE(writer.write(frame).wake);
    (void)link_->poll();
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_EQ(messages_, 300);
  EXPECT_EQ(lost.wait_for(0s), std::future_status::timeout);
}

TEST_F(Link, WhatTheMailboxHasNoRoomForFollows) {
  std::string frame;
  encode(FromRank(Heartbeat{}), &frame);
  const std::vector<FromRank> many(2 * MailboxMemory::kBytes / frame.size(), FromRank(Heartbeat{}));
  link_->send(many);
  size_t received = 0;
  MailboxReader reader((*boxes_)[1], boxes_, [&](std::string_view bytes) -> Result<size_t> {
    received += bytes.size();
    return bytes.size();
  });
  const auto limit = Clock::now() + 30s;
  while (received < many.size() * frame.size() && Clock::now() < limit) {
    ASSERT_TRUE(reader.drain());
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(received, many.size() * frame.size());
}

}  // namespace
}  // namespace pushpull
