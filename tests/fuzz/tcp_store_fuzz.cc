// The TCP store's frames, and the table behind them: whatever bytes a client sends, every frame is
// decoded or refused, encodes to itself, and the table gives every request but a wait its answer.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "backends/rendezvous/tcp/key_table.h"
#include "backends/rendezvous/tcp/protocol.h"

namespace pushpull::tcp_store {
namespace {

void require(bool condition, std::string_view what) {
  if (condition) return;
  std::cerr << what << "\n";
  std::abort();
}

void check_reply(std::string_view frame) {
  const auto reply = decode_reply(frame);
  if (!reply) return;
  const std::string once = encode(*reply);
  require(frame_length(once) == once.size() - kFrameHeadBytes, "a reply is longer than its frame");
  const auto again = decode_reply(std::string_view(once).substr(kFrameHeadBytes));
  require(again && encode(*again) == once, "a reply changes on its way");
}

// The frames one after the other, as a client would send them.
void drive_table(std::string_view bytes) {
  KeyTable table(std::chrono::hours(1));
  while (bytes.size() >= kFrameHeadBytes) {
    const auto length = frame_length(bytes);
    if (!length || bytes.size() < kFrameHeadBytes + *length) return;
    const std::string_view frame = bytes.substr(0, kFrameHeadBytes + *length);
    bytes.remove_prefix(frame.size());
    const auto request = decode_request(frame.substr(kFrameHeadBytes));
    if (!request) return;
    require(encode(*request) == frame, "a request changes on its way");
    int answers = 0;
    const auto ticket = table.run("client", *request, [&](const Reply& reply) {
      ++answers;
      check_reply(encode(reply).substr(kFrameHeadBytes));
    });
    require(answers == (ticket == 0 ? 1 : 0), "a request has not one answer");
    table.cancel(ticket);  // its answer would come after this round
  }
}

}  // namespace
}  // namespace pushpull::tcp_store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  pushpull::tcp_store::check_reply(bytes);
  pushpull::tcp_store::drive_table(bytes);
  return 0;
}
