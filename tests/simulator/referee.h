// Watches what reaches the coordinator and what it answers, and compares with the rules, told anew
// in the simplest way: lists that are searched from end to end.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulator/scenario.h"

namespace pushpull::simulator {

using KindAndKey = std::pair<CallKind, std::string>;

class Referee {
 public:
  using Complain = std::function<void(std::string)>;
  Referee(const Scenario& scenario, Complain complain);

  // Before the coordinator hears of it.
  void on_receive(int rank, const FromRank& message, Clock::time_point now);
  void on_disconnected(int rank);
  void on_batch_started(uint64_t number);
  // As the coordinator sends it; rank -1 is everybody.
  void on_send(int rank, const ToRank& message, Clock::time_point now);

  uint64_t calls_done() const { return done_; }
  uint64_t calls_failed() const { return failed_; }
  uint64_t batches() const { return cut_; }
  const std::optional<Aborted>& aborted() const { return aborted_; }

 private:
  struct Call {
    std::vector<std::optional<Signature>> by_rank;
    std::set<int> withdrawn;
    Clock::time_point first{};
    bool any = false;
    std::optional<uint64_t> ready;  // in which order
    uint64_t opened = 0;            // in which order
    int priority = 0;
    bool ended = false;
    uint64_t begin = 0;

    bool complete() const;
    bool alike() const;
  };
  struct ReadyCall {
    KindAndKey series;
    uint64_t number;
    Call* call;
  };

  Call& call(const KindAndKey& series, uint64_t number);
  void on_announced(const KindAndKey& series, Call& c);
  void on_joined(int rank, Call& join);
  void check_batch(const Batch& batch);
  std::vector<BatchEntry> expected_batch();
  std::vector<ReadyCall> ready_calls();
  void check_failed(const Failed& failed, Clock::time_point now);
  bool faces_another_kind(const KindAndKey& series, const Call& call);
  bool may_leave(int rank);

  const Scenario& scenario_;
  Complain complain_;
  std::map<KindAndKey, std::map<uint64_t, Call>> calls_;
  std::map<std::pair<int, uint32_t>, Define> defined_;  // by rank and its number
  std::map<uint32_t, KindAndKey> names_;
  std::map<KindAndKey, uint32_t> numbers_;
  std::set<std::pair<uint32_t, uint64_t>> told_;  // failures that were sent rank by rank
  std::set<int> leaving_;
  std::set<int> away_;  // have joined, while others have not
  std::set<int> farewelled_;
  std::vector<uint64_t> finished_;
  uint64_t order_ = 0;
  uint64_t cut_ = 0;
  uint64_t started_ = 0;
  uint64_t done_ = 0;
  uint64_t failed_ = 0;
  std::optional<Aborted> aborted_;
};

// What a batch entry of this call goes up to, and the bytes per element of that range.
struct Range {
  uint64_t end = 0;
  uint64_t width = 0;
  uint64_t bytes = 0;  // of the tensor
};
Range range_of(CallKind kind, const Signature& signature, int size);

}  // namespace pushpull::simulator
