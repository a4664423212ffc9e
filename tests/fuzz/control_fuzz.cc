// The control plane's decoders, and the coordinator behind them: whatever bytes authenticated ranks
// send, every message is decoded or refused, encodes to itself, and the coordinator ends in a valid
// state.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "core/control/coordinator.h"
#include "core/control/messages.h"

namespace pushpull {
namespace {

constexpr int kRanks = 3;

[[noreturn]] void broken(std::string_view what) {
  std::cerr << what << "\n";
  std::abort();
}

// What was decoded is encoded and decoded again: the bytes must not change any more.
template <class Message, class Decode>
void check_round_trip(const Message& message, Decode decode) {
  std::string once;
  encode(message, &once);
  const auto again = decode(once);
  if (!again || !*again) broken("an encoded message cannot be decoded");
  if ((*again)->bytes != once.size()) broken("an encoded message is longer than its frame");
  std::string twice;
  encode((*again)->message, &twice);
  if (once != twice) broken("a message changes on its way");
}

class Judge : public Coordinator::Output {
 public:
  void send(int rank, const ToRank& message) override {
    if (rank < 0 || rank >= kRanks) broken("the coordinator answers a rank that is not");
    check_round_trip(message, decode_to_rank);
  }
  void send_all(const ToRank& message) override {
    if (ended_) broken("the coordinator goes on after its verdict");
    ended_ = std::holds_alternative<Aborted>(message);
    check_round_trip(message, decode_to_rank);
    if (const auto* batch = std::get_if<Batch>(&message)) cut_ = batch->number;
  }
  uint64_t cut() const { return cut_; }

 private:
  bool ended_ = false;
  uint64_t cut_ = 0;
};

// Every step: a byte that says who speaks and how much time passes, then a frame.
void drive_coordinator(std::string_view bytes) {
  CoordinatorOptions options;
  options.size = kRanks;
  options.run = "fuzz";
  options.fusion_bytes = 4096;
  Judge judge;
  Coordinator coordinator(options, judge);
  Clock::time_point now(std::chrono::hours(1));
  for (int r = 0; r < kRanks; ++r) {
    const Member member{.rank = r, .host = "h", .pid = r, .boot_id = {}, .address = {}};
    if (!coordinator.join(member, now)) broken("a rank could not join");
  }
  for (int r = 0; r < kRanks; ++r) coordinator.receive(r, Connected{}, now);
  while (!bytes.empty()) {
    const auto step = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    const int rank = step % 4;
    now += std::chrono::milliseconds(1 << (step / 4 % 16));
    if (step >= 128) coordinator.batch_started(judge.cut(), now);
    if (coordinator.next_timer() <= now) coordinator.tick(now);
    if (rank == kRanks) {
      coordinator.disconnected(step / 64 % kRanks, "cut", now);
      continue;
    }
    const auto decoded = decode_from_rank(bytes);
    if (!decoded || !*decoded) break;
    check_round_trip((*decoded)->message, decode_from_rank);
    coordinator.receive(rank, (*decoded)->message, now);
    bytes.remove_prefix((*decoded)->bytes);
  }
  if (coordinator.dump(now).empty()) broken("nothing to show");
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto decoded = decode_from_rank(bytes); decoded && *decoded) {
    if ((*decoded)->bytes > size) broken("more was taken than there was");
    check_round_trip((*decoded)->message, decode_from_rank);
  }
  if (const auto decoded = decode_to_rank(bytes); decoded && *decoded) {
    if ((*decoded)->bytes > size) broken("more was taken than there was");
    check_round_trip((*decoded)->message, decode_to_rank);
  }
  if (const auto member = decode_joining(bytes); member && encode_joining(*member) != bytes) {
    // Numbers may be written longer than needed; the value must be stable all the same.
    const auto again = decode_joining(encode_joining(*member));
    if (!again || encode_joining(*again) != encode_joining(*member)) broken("a member changes");
  }
  drive_coordinator(bytes);
  return 0;
}
