#include "core/net/hello.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "core/net/bytes.h"

namespace pushpull {
namespace {

constexpr std::string_view kMagic = "ppul";
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;
constexpr size_t kChallengeBytes = 4 + 2 + kNonceBytes;
constexpr size_t kHeadBytes = 4 + 2 + 2;     // magic, protocol version, length of the rest
constexpr size_t kVerdictHeadBytes = 1 + 2;  // verdict, length of the body
constexpr size_t kMaxVersionBytes = 32;
constexpr size_t kMaxRunBytes = 64;
constexpr size_t kMaxSentenceBytes = 2048;
constexpr size_t kMaxNameBytes = 512;  // culprit host and key in a refusal
constexpr size_t kTailBytes = kNonceBytes + kMacBytes;
constexpr size_t kMaxVerdictBytes = kMaxHelloBytes;

enum Verdict : uint8_t { kAccepted = 1, kRefused = 2, kWrongSecret = 3 };

std::string random_bytes(size_t count) {
  std::string bytes(count, '\0');
  auto* to = reinterpret_cast<unsigned char*>(bytes.data());
  if (RAND_bytes(to, static_cast<int>(count)) == 1) return bytes;
  // OpenSSL's generator is not usable (a broken configuration): the kernel's is.
  for (size_t done = 0; done < count;) {
    const ssize_t got = getrandom(to + done, count - done, 0);
    if (got > 0) done += static_cast<size_t>(got);
  }
  return bytes;
}

std::string hexadecimal(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

// Empty where OpenSSL fails, which no comparison accepts.
std::string mac(std::string_view secret, std::string_view label, std::string_view first,
                std::string_view second) {
  std::string data;
  data.reserve(label.size() + first.size() + second.size());
  data.append(label).append(first).append(second);
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int length = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.data(),
           &length) == nullptr) {
    return {};
  }
  return std::string(reinterpret_cast<const char*>(digest.data()), length);
}

std::string client_mac(std::string_view secret, std::string_view server_nonce,
                       std::string_view message) {
  return mac(secret, "pushpull client", server_nonce, message);
}

std::string server_mac(std::string_view secret, std::string_view nonces, std::string_view message) {
  return mac(secret, "pushpull server", nonces, message);
}

bool same_mac(std::string_view left, std::string_view right) {
  return left.size() == kMacBytes && right.size() == kMacBytes &&
         CRYPTO_memcmp(left.data(), right.data(), kMacBytes) == 0;
}

// At most `longest` bytes, never half of a UTF-8 character.
std::string_view cut(std::string_view text, size_t longest) {
  if (text.size() <= longest) return text;
  while (longest > 0 && (static_cast<unsigned char>(text[longest]) & 0xc0) == 0x80) --longest;
  return text.substr(0, longest);
}

bool starts_like(std::string_view input, std::string_view magic) {
  const size_t common = std::min(input.size(), magic.size());
  return input.substr(0, common) == magic.substr(0, common);
}

std::string encode_error(const Error& error) {
  std::string body;
  ByteWriter out(&body);
  out.integer(static_cast<uint8_t>(error.code()));
  out.integer(static_cast<uint8_t>(error.restartable()));
  out.integer(static_cast<int32_t>(error.rank()));
  out.string<uint16_t>(cut(error.host(), kMaxNameBytes));
  out.string<uint16_t>(cut(error.key(), kMaxNameBytes));
  out.string<uint16_t>(cut(error.message(), kMaxSentenceBytes));
  return body;
}

std::optional<Error> decode_error(std::string_view body) {
  ByteReader in(body);
  const auto code = in.integer<uint8_t>();
  const bool restartable = in.integer<uint8_t>() != 0;
  const auto rank = in.integer<int32_t>();
  std::string host = in.string<uint16_t>(kMaxNameBytes);
  std::string key = in.string<uint16_t>(kMaxNameBytes);
  std::string message = in.string<uint16_t>(kMaxSentenceBytes);
  if (!in.finished() || code < static_cast<uint8_t>(ErrorCode::kInvalidArgument) ||
      code > static_cast<uint8_t>(ErrorCode::kAborted)) {
    return std::nullopt;
  }
  Error error(static_cast<ErrorCode>(code), std::move(message));
  error.at_rank(rank, std::move(host)).at_key(std::move(key));
  if (restartable) error.make_restartable();
  return error;
}

void encode_fields(const Hello& hello, std::string* out) {
  ByteWriter to(out);
  to.string<uint16_t>(hello.version);
  to.integer(hello.rank);
  to.integer(static_cast<uint8_t>(hello.purpose));
  to.string<uint16_t>(hello.job);
  to.string<uint16_t>(hello.run);
  to.integer(hello.generation);
  to.string<uint16_t>(hello.detail);
}

std::optional<Hello> decode_fields(std::string_view fields) {
  ByteReader in(fields);
  Hello hello;
  hello.version = in.string<uint16_t>(kMaxVersionBytes);
  hello.rank = in.integer<int32_t>();
  hello.purpose = static_cast<Purpose>(in.integer<uint8_t>());
  hello.job = in.string<uint16_t>(kMaxJobBytes);
  hello.run = in.string<uint16_t>(kMaxRunBytes);
  hello.generation = in.integer<int32_t>();
  hello.detail = in.string<uint16_t>(kMaxDetailBytes);
  const bool known = hello.purpose >= Purpose::kControl && hello.purpose <= Purpose::kStore;
  if (!in.finished() || !known) return std::nullopt;
  return hello;
}

Error protocols_differ(int rank, std::string_view version, uint16_t protocol) {
  const std::string who = rank >= 0 ? fmt::format("rank {}", rank) : "a rank";
  return Error(ErrorCode::kInvalidArgument,
               fmt::format("{} runs pushpull {} (protocol {}), rank 0 runs {} (protocol {}); "
                           "install the same version everywhere",
                           who, version, protocol, library_version(), kProtocolVersion))
      .at_rank(rank);
}

// The first field that does not fit into a hello, and its limit.
std::optional<Error> too_long(const Hello& hello) {
  const auto check = [](std::string_view what, size_t size, size_t limit) -> std::optional<Error> {
    if (size <= limit) return std::nullopt;
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("the {} has {} bytes, at most {} are possible", what, size, limit));
  };
  if (auto e = check("job name", hello.job.size(), kMaxJobBytes)) return e;
  if (auto e = check("run id", hello.run.size(), kMaxRunBytes)) return e;
  if (auto e = check("version", hello.version.size(), kMaxVersionBytes)) return e;
  return check("description of this rank", hello.detail.size(), kMaxDetailBytes);
}

}  // namespace

// ---- server ----

ServerHandshake::ServerHandshake(std::string secret, Judge judge)
    : secret_(std::move(secret)), judge_(std::move(judge)), nonce_(random_bytes(kNonceBytes)) {
  output_ = kMagic;
  ByteWriter(&output_).integer(kProtocolVersion);
  output_ += nonce_;
}

size_t ServerHandshake::wanted() const {
  if (finished_ || failed_) return 0;
  if (input_.size() < kHeadBytes) return kHeadBytes - input_.size();
  const size_t length = ByteReader(std::string_view(input_).substr(6)).integer<uint16_t>();
  return kHeadBytes + length - input_.size();
}

Result<size_t> ServerHandshake::feed(std::string_view bytes) {
  if (failed_) return fail(ErrorCode::kInvalidArgument, "the hello has failed");
  size_t used = 0;
  while (used < bytes.size() && wanted() > 0) {
    const size_t now = std::min(wanted(), bytes.size() - used);
    input_.append(bytes.substr(used, now));
    used += now;
    failed_ = true;  // until this part proved well-formed
    if (!starts_like(input_, kMagic)) {
      return fail(ErrorCode::kInvalidArgument, "what arrived is not a pushpull hello");
    }
    if (input_.size() >= kHeadBytes) {
      const size_t length = ByteReader(std::string_view(input_).substr(6)).integer<uint16_t>();
      if (length < kTailBytes || length + kHeadBytes > kMaxHelloBytes) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("a hello of {} bytes is not possible", length + kHeadBytes));
      }
      if (input_.size() == kHeadBytes + length) {
        if (auto judged = judge_message(input_); !judged) return fail(judged.error());
        finished_ = true;
      }
    }
    failed_ = false;
  }
  return used;
}

Result<void> ServerHandshake::judge_message(std::string_view message) {
  const std::string_view signed_part = message.substr(0, message.size() - kMacBytes);
  if (!same_mac(client_mac(secret_, nonce_, signed_part), message.substr(signed_part.size()))) {
    answer(kWrongSecret, {}, false);
    return fail(ErrorCode::kInvalidArgument, "its secret differs (PUSHPULL_SECRET)");
  }
  client_nonce_ = signed_part.substr(signed_part.size() - kNonceBytes);
  auto judged = judge_fields(signed_part.substr(0, signed_part.size() - kNonceBytes));
  if (!judged) {
    answer(kRefused, encode_error(judged.error()), true);
    return judged;
  }
  answer(kAccepted, {}, true);
  return {};
}

Result<void> ServerHandshake::judge_fields(std::string_view message) {
  const auto protocol = ByteReader(message.substr(4)).integer<uint16_t>();
  const std::string_view fields = message.substr(kHeadBytes);
  if (protocol != kProtocolVersion) {
    ByteReader in(fields);
    const std::string version = in.string<uint16_t>(kMaxVersionBytes);
    const auto rank = in.integer<int32_t>();
    return fail(protocols_differ(in.ok() ? rank : -1, in.ok() ? version : "?", protocol));
  }
  std::optional<Hello> hello = decode_fields(fields);
  if (!hello) return fail(ErrorCode::kInvalidArgument, "a field of the hello is malformed");
  if (judge_) {
    if (auto judged = judge_(*hello); !judged) return judged;
  }
  hello_ = std::move(*hello);
  return {};
}

void ServerHandshake::answer(uint8_t verdict, std::string_view body, bool authentic) {
  std::string message;
  ByteWriter out(&message);
  out.integer(verdict);
  out.string<uint16_t>(body);
  // One who did not prove the secret gets nothing computed with it, to guess at offline.
  output_ += message;
  output_ += authentic ? server_mac(secret_, nonce_ + client_nonce_, message)
                       : std::string(kMacBytes, '\0');
}

// ---- client ----

ClientHandshake::ClientHandshake(std::string secret, Hello hello)
    : secret_(std::move(secret)), hello_(std::move(hello)) {
  if (hello_.version.empty()) hello_.version = library_version();
}

size_t ClientHandshake::wanted() const {
  if (finished_ || failure_ != Failure::kNone) return 0;
  if (!challenged_) return kChallengeBytes - input_.size();
  if (input_.size() < kVerdictHeadBytes) return kVerdictHeadBytes - input_.size();
  const size_t body = ByteReader(std::string_view(input_).substr(1)).integer<uint16_t>();
  return kVerdictHeadBytes + body + kMacBytes - input_.size();
}

Result<size_t> ClientHandshake::feed(std::string_view bytes) {
  if (failure_ != Failure::kNone) {
    return fail(ErrorCode::kUnavailable, "the hello has failed");
  }
  size_t used = 0;
  while (used < bytes.size() && wanted() > 0) {
    const size_t now = std::min(wanted(), bytes.size() - used);
    input_.append(bytes.substr(used, now));
    used += now;
    if (auto taken = take_message(); !taken) return fail(taken.error());
  }
  return used;
}

Result<void> ClientHandshake::take_message() {
  if (!challenged_) {
    if (!starts_like(input_, kMagic)) return broken("what answers there is not pushpull");
    if (input_.size() < kChallengeBytes) return {};
    challenged_ = true;
    return answer_challenge(std::exchange(input_, {}));
  }
  if (input_.size() < kVerdictHeadBytes) return {};
  const size_t body = ByteReader(std::string_view(input_).substr(1)).integer<uint16_t>();
  const size_t whole = kVerdictHeadBytes + body + kMacBytes;
  if (whole > kMaxVerdictBytes) return broken("the answer to the hello is malformed");
  if (input_.size() < whole) return {};
  return check_verdict(std::exchange(input_, {}));
}

Result<void> ClientHandshake::answer_challenge(std::string_view message) {
  if (const auto error = too_long(hello_)) {
    failure_ = Failure::kRefused;
    return fail(*error);
  }
  const std::string_view server_nonce = message.substr(message.size() - kNonceBytes);
  const std::string own_nonce = random_bytes(kNonceBytes);
  std::string fields;
  encode_fields(hello_, &fields);
  std::string answer(kMagic);
  ByteWriter out(&answer);
  out.integer(kProtocolVersion);
  out.integer(static_cast<uint16_t>(fields.size() + kTailBytes));
  answer += fields;
  answer += own_nonce;
  answer += client_mac(secret_, server_nonce, answer);
  nonces_ = std::string(server_nonce) + own_nonce;
  output_ += answer;
  return {};
}

Result<void> ClientHandshake::check_verdict(std::string_view message) {
  const auto verdict = static_cast<uint8_t>(message[0]);
  if (verdict == kWrongSecret) {
    failure_ = Failure::kSecret;
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("the secret of job '{}' differs: set the same PUSHPULL_SECRET or "
                            "PUSHPULL_SECRET_FILE on every rank",
                            hello_.job));
  }
  const std::string_view signed_part = message.substr(0, message.size() - kMacBytes);
  if (!same_mac(server_mac(secret_, nonces_, signed_part), message.substr(signed_part.size()))) {
    return broken("what answers there does not know the job's secret");
  }
  if (verdict == kAccepted) {
    finished_ = true;
    return {};
  }
  const auto error = decode_error(signed_part.substr(kVerdictHeadBytes));
  if (verdict != kRefused || !error) return broken("the answer to the hello is malformed");
  failure_ = Failure::kRefused;
  return fail(*error);
}

tl::unexpected<Error> ClientHandshake::broken(std::string why) {
  failure_ = Failure::kBroken;
  return fail(ErrorCode::kUnavailable, std::move(why));
}

std::string library_version() { return PUSHPULL_VERSION; }

std::string random_id() { return hexadecimal(random_bytes(16)); }

std::string random_secret() { return hexadecimal(random_bytes(32)); }

}  // namespace pushpull
