// The Redis protocol, by hiredis: commands to bytes, bytes to replies. No I/O here.
//
// Only the formatter and the reader of hiredis are used. Its own socket calls know a timeout per
// call, not a deadline (a server that sends a byte a second would never time out), and raise
// SIGPIPE.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct redisReader;

namespace pushpull::redis {

// What is asked. The views must outlive the call.
struct Command {
  std::vector<std::string_view> words;  // "GET", "pushpull:job:run"
  std::string_view key{};               // which of the words is the key; may be empty
  std::string_view inner{};             // for scripts: the commands inside, "GET, SET"

  std::string_view name() const { return words.front(); }
};

struct Reply {
  enum class Kind { kNil, kStatus, kString, kInteger, kError };
  Kind kind = Kind::kNil;
  std::string text;     // of kStatus, kString, kError
  int64_t integer = 0;  // of kInteger
};

// The bytes to send; empty when memory is short.
std::string encode(const Command& command);

// Turns the bytes of one reply after another into values. Replies that no command of ours has
// (arrays) and replies of more than kMaxReply bytes count as garbage.
class ReplyReader {
 public:
  static constexpr size_t kMaxReply = 1u << 20;

  ReplyReader();
  ReplyReader(ReplyReader&&) noexcept = default;
  ReplyReader& operator=(ReplyReader&&) noexcept = default;

  // Adds bytes from the wire; false where they are not the Redis protocol.
  [[nodiscard]] bool feed(std::string_view bytes);
  // The next whole reply; nullopt while it is incomplete. False in `sane` as for feed().
  std::optional<Reply> next(bool& sane);
  // The first bytes of the reply in progress, at most 32: for messages about garbage.
  const std::string& head() const { return head_; }

 private:
  struct Free {
    void operator()(redisReader* reader) const;
  };
  std::unique_ptr<redisReader, Free> reader_;
  std::string head_;
  size_t pending_ = 0;  // bytes fed since the last whole reply
};

}  // namespace pushpull::redis
