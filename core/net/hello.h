// The first bytes of every connection that pushpull opens: who is calling, for which job, and proof
// that both ends know the job's secret. No payload is read before the proof.
//
//   server -> client   magic, protocol version, nonce_s (32 random bytes)
//   client -> server   magic, protocol version, Hello fields, nonce_c, HMAC-SHA256(secret, "client" | both nonces | fields)
//   server -> client   verdict byte, [sentence], HMAC-SHA256(secret, "server" | both nonces | verdict | sentence)
//
// The nonces make a recorded hello worthless. Both classes are state machines over bytes, without a
// socket in them: feed() what arrived, send what output() holds. All lengths are checked; a message
// is at most kMaxHelloBytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.h"

namespace pushpull {

inline constexpr uint16_t kProtocolVersion = 1;
inline constexpr size_t kMaxHelloBytes = 4096;

enum class Purpose : uint8_t { kControl = 1, kData = 2, kStore = 3 };

struct Hello {
  Purpose purpose = Purpose::kControl;
  std::string version;     // of the library, "0.1.0": shown where protocols differ
  std::string job;
  std::string run;         // empty for a store
  int32_t generation = 0;
  int32_t rank = -1;       // of the caller; -1 for a store client that has none yet
  int32_t lane = 0;
  std::string detail;      // payload of the purpose (a Member for kControl), authenticated as well
};

// The server's half. After finished(): hello() is authentic and accepted.
class ServerHandshake {
 public:
  // `judge` sees an authentic hello and returns an error to refuse it; the sentence reaches the client.
  using Judge = std::function<Result<void>(const Hello&)>;
  ServerHandshake(std::string secret, Judge judge);

  // Bytes to send now; the caller clears it.
  std::string& output() { return output_; }
  // Consumes bytes; returns how many belonged to the handshake (the rest is payload), or an error
  // after which output() may hold a refusal to send before closing.
  [[nodiscard]] Result<size_t> feed(std::string_view bytes);
  bool finished() const { return finished_; }
  const Hello& hello() const { return hello_; }

 private:
  Result<void> judge_message(std::string_view message);

  std::string secret_;
  Judge judge_;
  std::string nonce_;
  std::string input_;
  std::string output_;
  Hello hello_;
  bool finished_ = false;
};

// The client's half.
class ClientHandshake {
 public:
  ClientHandshake(std::string secret, Hello hello);
  std::string& output() { return output_; }
  [[nodiscard]] Result<size_t> feed(std::string_view bytes);
  bool finished() const { return finished_; }

 private:
  Result<void> answer_challenge(std::string_view message);
  Result<void> check_verdict(std::string_view message);

  std::string secret_;
  Hello hello_;
  std::string nonces_;
  std::string input_;
  std::string output_;
  bool challenged_ = false;
  bool finished_ = false;
};

// 32 hexadecimal digits from the system's random source.
std::string random_id();
// A new job secret, 64 hexadecimal digits.
std::string random_secret();

}  // namespace pushpull
