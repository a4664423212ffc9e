// Both halves of the hello. The first byte picks what the rest is: bytes from a stranger to the
// server or to the client, or, authenticated as only the job's own ranks can, the fields of a hello
// or the error of a refusal. The second byte is the size of the pieces in which they arrive.
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "core/net/hello.h"

namespace pushpull {
namespace {

constexpr char kSecret[] = "secret";
constexpr size_t kNonceBytes = 32;
constexpr size_t kMacBytes = 32;

[[noreturn]] void broken(std::string_view what) {
  std::cerr << what << "\n";
  std::abort();
}

void require(bool condition, std::string_view what) {
  if (!condition) broken(what);
}

std::string hmac(const std::string& data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HMAC(EVP_sha256(), kSecret, sizeof(kSecret) - 1,
       reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest, &length);
  return std::string(reinterpret_cast<const char*>(digest), length);
}

std::string two_bytes(size_t number) {
  return {static_cast<char>(number & 0xff), static_cast<char>(number >> 8 & 0xff)};
}

// Feeds as a socket would: never more than is wanted.
template <class Handshake>
void feed(Handshake& handshake, std::string_view bytes, size_t piece) {
  while (!bytes.empty()) {
    const size_t wanted = handshake.wanted();
    require(wanted <= kMaxHelloBytes, "more is wanted than a hello may have");
    if (wanted == 0) return;
    const std::string_view now = bytes.substr(0, std::min({piece, wanted, bytes.size()}));
    const auto used = handshake.feed(now);
    if (!used) {
      require(!handshake.finished(), "a hello that failed is finished");
      require(handshake.wanted() == 0, "a hello that failed wants more");
      require(!handshake.feed("x"), "a hello that failed goes on");
      return;
    }
    require(*used == now.size(), "what was wanted is not taken");
    bytes.remove_prefix(*used);
  }
}

Hello sample() {
  Hello hello;
  hello.job = "job";
  hello.run = "run";
  hello.rank = 3;
  return hello;
}

void stranger_to_server(std::string_view bytes, size_t piece) {
  ServerHandshake server(
      kSecret, [](const Hello&) -> Result<void> { broken("a stranger came before the judge"); });
  feed(server, bytes, piece);
  require(!server.finished(), "a stranger was let in");
}

void stranger_to_client(std::string_view bytes, size_t piece) {
  ClientHandshake client(kSecret, sample());
  feed(client, bytes, piece);
  require(!client.finished(), "a stranger was believed");
}

// `fields` as an authentic client would send them, with any protocol version.
void fields_to_server(std::string_view fields, size_t piece, uint16_t protocol) {
  fields = fields.substr(0, kMaxHelloBytes);
  ServerHandshake server(kSecret, {});
  const std::string nonce = server.output().substr(6);
  server.output().clear();
  std::string hello = "ppul" + two_bytes(protocol) + two_bytes(fields.size() + 64);
  hello += std::string(fields) + std::string(kNonceBytes, 'n');
  hello += hmac("pushpull client" + nonce + hello);
  feed(server, hello, piece);
  if (!server.finished()) return;
  require(protocol == kProtocolVersion, "another protocol was let in");
  // What it understood must come out the same when sent again.
  ServerHandshake second(kSecret, {});
  ClientHandshake client(kSecret, server.hello());
  feed(client, second.output(), 4096);
  const std::string again = client.output();
  if (!server.hello().version.empty()) {
    require(again.substr(8, again.size() - 8 - 64) == fields, "fields change on their way");
  }
}

void refusal_to_client(std::string_view body, size_t piece, uint8_t verdict) {
  body = body.substr(0, kMaxHelloBytes);
  ServerHandshake server(kSecret, {});
  ClientHandshake client(kSecret, sample());
  feed(client, server.output(), 4096);
  const std::string hello = client.output();
  const std::string nonces =
      server.output().substr(6) + hello.substr(hello.size() - kMacBytes - kNonceBytes, kNonceBytes);
  std::string message(1, static_cast<char>(verdict));
  message += two_bytes(body.size()) + std::string(body);
  message += hmac("pushpull server" + nonces + message);
  feed(client, message, piece);
  require(!client.finished() || verdict == 1, "a refusal was taken for an acceptance");
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  const size_t piece = data[1] + size_t{1};
  const std::string_view rest(reinterpret_cast<const char*>(data) + 3, size - 3);
  switch (data[0] % 4) {
    case 0:
      pushpull::stranger_to_server(rest, piece);
      break;
    case 1:
      pushpull::stranger_to_client(rest, piece);
      break;
    case 2:
      pushpull::fields_to_server(rest, piece, data[2]);
      break;
    case 3:
      pushpull::refusal_to_client(rest, piece, data[2]);
      break;
  }
  return 0;
}
