// The first bytes of every connection that pushpull opens: who is calling, for which job, and proof
// that both ends know the job's secret. No payload is read before the proof.
//
//   server -> client   magic, protocol version, nonce_s (32 random bytes)
//   client -> server   magic, protocol version, length, Hello fields, nonce_c, HMAC(nonce_s | all
//   before) server -> client   verdict, length, [error], HMAC(both nonces | verdict | length |
//   error)
//
// HMAC is HMAC-SHA256 with the job's secret over a label per direction and what is named here. The
// nonces make a recorded hello worthless. Nothing of a message is interpreted before its HMAC was
// checked; a client that cannot prove the secret gets a verdict without HMAC. The frame, the place
// of the version and rank fields in front, and of nonce and HMAC at the end are the same in every
// protocol version, so that two versions can tell each other which they are.
//
// Both classes are state machines over bytes, without a socket in them: read at most wanted()
// bytes, feed() them, send what output() holds. Reading no more leaves the payload that follows in
// the socket. All lengths are checked; a message is at most kMaxHelloBytes.
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
// Longer fields are the client's InvalidArgument.
inline constexpr size_t kMaxJobBytes = 255;
inline constexpr size_t kMaxDetailBytes = 2048;

enum class Purpose : uint8_t { kControl = 1, kData = 2, kStore = 3 };

struct Hello {
  Purpose purpose = Purpose::kControl;
  std::string version;  // of the library, "0.1.0": shown where protocols differ; empty: this one's
  std::string job;
  std::string run;  // empty for a store
  int32_t generation = 0;
  int32_t rank = -1;  // of the caller; -1 for a store client that has none yet
  std::string detail;  // payload of the purpose (a Member for kControl), authenticated as well
};

// The server's half. After finished(): hello() is authentic and accepted.
class ServerHandshake {
 public:
  // `judge` sees an authentic hello and returns an error to refuse it; the sentence reaches the
  // client.
  using Judge = std::function<Result<void>(const Hello&)>;
  ServerHandshake(std::string secret, Judge judge);

  // Bytes to send now; the caller clears it.
  std::string& output() { return output_; }
  // How many bytes may be read next without touching what follows the hello; 0: none.
  size_t wanted() const;
  // Consumes bytes; returns how many belonged to the handshake (the rest is payload), or an error
  // after which output() may hold a refusal to send before closing.
  [[nodiscard]] Result<size_t> feed(std::string_view bytes);
  bool finished() const { return finished_; }
  const Hello& hello() const { return hello_; }

 private:
  Result<void> judge_message(std::string_view message);
  Result<void> judge_fields(std::string_view message);
  void answer(uint8_t verdict, std::string_view body, bool authentic);

  std::string secret_;
  Judge judge_;
  std::string nonce_;
  std::string client_nonce_;
  std::string input_;
  std::string output_;
  Hello hello_;
  bool finished_ = false;
  bool failed_ = false;
};

// The client's half.
class ClientHandshake {
 public:
  // Why feed() failed.
  enum class Failure : uint8_t {
    kNone,
    kBroken,   // the other end does not speak this protocol or cannot prove that it knows the
               // secret; another try may find one that does
    kSecret,   // the secrets differ
    kRefused,  // the judge said no, the protocol versions differ, or a field is too long
  };

  ClientHandshake(std::string secret, Hello hello);
  std::string& output() { return output_; }
  size_t wanted() const;
  // The error of a refusal equals the judge's: code, sentence, culprit, restartable.
  [[nodiscard]] Result<size_t> feed(std::string_view bytes);
  bool finished() const { return finished_; }
  Failure failure() const { return failure_; }

 private:
  Result<void> take_message();
  Result<void> answer_challenge(std::string_view message);
  Result<void> check_verdict(std::string_view message);
  tl::unexpected<Error> broken(std::string why);

  std::string secret_;
  Hello hello_;
  std::string nonces_;
  std::string input_;
  std::string output_;
  bool challenged_ = false;
  bool finished_ = false;
  Failure failure_ = Failure::kNone;
};

// "0.1.0"
std::string library_version();

// 32 hexadecimal digits from the system's random source.
std::string random_id();
// A new job secret, 64 hexadecimal digits.
std::string random_secret();

}  // namespace pushpull
