// Drives a Coordinator by hand and remembers what it sent.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "core/control/coordinator.h"

namespace pushpull {

class CoordinatorFixture : public ::testing::Test, public Coordinator::Output {
 protected:
  static constexpr int kAll = -1;
  using Seconds = std::chrono::seconds;
  using Milliseconds = std::chrono::milliseconds;

  void send(int rank, const ToRank& message) override { sent.emplace_back(rank, message); }
  void send_all(const ToRank& message) override { sent.emplace_back(kAll, message); }

  static Member member(int rank) {
    return {.rank = rank,
            .host = "node-" + std::string(1, static_cast<char>('a' + rank % 26)),
            .pid = 1000 + rank,
            .boot_id = "boot",
            .network_namespace = 1,
            .address = {}};
  }

  // A group that is ready, with nothing sent yet.
  void start(int size) {
    options.size = size;
    options.run = "run";
    make();
    for (int r = 0; r < size; ++r) ASSERT_TRUE(coordinator->join(member(r), now));
    for (int r = 0; r < size; ++r) coordinator->receive(r, Connected{}, now);
    ASSERT_TRUE(coordinator->all_connected());
    sent.clear();
  }
  void make() { coordinator = std::make_unique<Coordinator>(options, *this); }

  static Signature tensor(std::vector<int64_t> shape, DType dtype = DType::kFloat32) {
    return {.dtype = dtype, .shape = std::move(shape), .root = -1, .reduce = {}};
  }
  static Signature broadcast(std::vector<int64_t> shape, int root = 0) {
    return {.dtype = DType::kFloat32, .shape = std::move(shape), .root = root, .reduce = {}};
  }

  void define(int rank, uint32_t id, const std::string& key, const Signature& signature,
              CallKind kind = CallKind::kPushPull) {
    coordinator->receive(rank, Define{.id = id, .kind = kind, .key = key, .signature = signature},
                         now);
  }
  void define_all(uint32_t id, const std::string& key, const Signature& signature,
                  CallKind kind = CallKind::kPushPull) {
    for (int r = 0; r < options.size; ++r) define(r, id, key, signature, kind);
  }
  void announce(int rank, uint32_t id, uint64_t call, int priority = 0) {
    coordinator->receive(rank, Announce{{{id, call, priority}}}, now);
  }
  void announce_all(uint32_t id, uint64_t call, int priority = 0) {
    for (int r = 0; r < options.size; ++r) announce(r, id, call, priority);
  }
  // Rank 0 starts this batch and every rank finishes it.
  void run_batch(uint64_t number) {
    coordinator->batch_started(number, now);
    for (int r = 0; r < options.size; ++r)
      coordinator->receive(r, Progress{.finished = number}, now);
  }
  // Lets time pass as a server would: timers fire when they are due, living ranks are heard.
  void pass(Duration duration, std::vector<int> silent = {}) {
    const auto end = now + duration;
    while (now < end) {
      now = std::min(end, now + Milliseconds(100));
      for (int r = 0; r < options.size; ++r)
        if (std::find(silent.begin(), silent.end(), r) == silent.end())
          coordinator->receive(r, Heartbeat{}, now);
      if (coordinator->next_timer() <= now) coordinator->tick(now);
    }
  }

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const auto& [to, message] : sent)
      if (const T* m = std::get_if<T>(&message)) found.push_back(*m);
    return found;
  }
  template <class T>
  T only() const {
    const auto found = all<T>();
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? T{} : found.front();
  }

  CoordinatorOptions options;
  std::unique_ptr<Coordinator> coordinator;
  std::vector<std::pair<int, ToRank>> sent;
  Clock::time_point now = Clock::time_point(std::chrono::hours(1));
};

}  // namespace pushpull
