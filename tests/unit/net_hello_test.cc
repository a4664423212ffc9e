#include "core/net/hello.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <gtest/gtest.h>

namespace pushpull {
namespace {

Hello sample() {
  Hello hello;
  hello.purpose = Purpose::kData;
  hello.job = "digits";
  hello.run = "0123456789abcdef0123456789abcdef";
  hello.generation = 7;
  hello.rank = 3;
  hello.detail = std::string("\0\xff detail", 9);
  return hello;
}

std::string take(std::string& bytes) { return std::exchange(bytes, {}); }

struct Outcome {
  std::optional<Error> server;
  std::optional<Error> client;
};

// Carries bytes between both, at most `piece` at a time, until both are silent.
Outcome converse(ServerHandshake& server, ClientHandshake& client, size_t piece = 100'000) {
  Outcome outcome;
  std::string to_client;
  std::string to_server;
  while (true) {
    to_client += take(server.output());
    to_server += take(client.output());
    if (to_client.empty() && to_server.empty()) return outcome;
    if (!to_client.empty()) {
      const auto fed = client.feed(to_client.substr(0, piece));
      to_client.erase(0, std::min(piece, to_client.size()));
      if (!fed) {
        outcome.client = fed.error();
        to_client.clear();
      }
    }
    if (!to_server.empty()) {
      const auto fed = server.feed(to_server.substr(0, piece));
      to_server.erase(0, std::min(piece, to_server.size()));
      if (!fed) {
        outcome.server = fed.error();
        to_server.clear();
      }
    }
  }
}

TEST(Hello, CarriesEveryFieldWhateverThePieces) {
  for (const size_t piece : {1, 2, 7, 39, 5000}) {
    int judged = 0;
    ServerHandshake server("secret", [&](const Hello&) -> Result<void> {
      ++judged;
      return {};
    });
    ClientHandshake client("secret", sample());
    const Outcome outcome = converse(server, client, piece);
    EXPECT_FALSE(outcome.server || outcome.client);
    ASSERT_TRUE(server.finished());
    EXPECT_TRUE(client.finished());
    EXPECT_EQ(judged, 1);
    const Hello& got = server.hello();
    EXPECT_EQ(got.purpose, Purpose::kData);
    EXPECT_EQ(got.version, library_version());
    EXPECT_EQ(got.job, sample().job);
    EXPECT_EQ(got.run, sample().run);
    EXPECT_EQ(got.generation, 7);
    EXPECT_EQ(got.rank, 3);
    EXPECT_EQ(got.detail, sample().detail);
  }
}

TEST(Hello, AnEmptySecretWorksOnBothEndsOnly) {
  ServerHandshake server("", {});
  ClientHandshake client("", sample());
  converse(server, client);
  EXPECT_TRUE(server.finished() && client.finished());
  ServerHandshake strict("secret", {});
  ClientHandshake open("", sample());
  converse(strict, open);
  EXPECT_FALSE(strict.finished() || open.finished());
}

TEST(Hello, PayloadBehindItIsLeftAlone) {
  ServerHandshake server("s", {});
  ClientHandshake client("s", sample());
  ASSERT_TRUE(client.feed(take(server.output())));
  const std::string hello = take(client.output());
  EXPECT_EQ(server.feed(hello + "payload").value(), hello.size());
  EXPECT_EQ(server.wanted(), 0u);
  const std::string verdict = take(server.output());
  EXPECT_EQ(client.feed(verdict + "Welcome").value(), verdict.size());
  EXPECT_TRUE(client.finished());
  EXPECT_EQ(client.wanted(), 0u);
  EXPECT_EQ(client.feed("more").value(), 0u);
}

TEST(Hello, ReadingOnlyWhatIsWantedNeverReadsPayload) {
  ServerHandshake server("s", {});
  ClientHandshake client("s", sample());
  const std::string challenge = take(server.output());
  EXPECT_EQ(client.wanted(), challenge.size());
  ASSERT_TRUE(client.feed(challenge));
  const std::string stream = take(client.output()) + "payload";
  size_t read = 0;
  while (!server.finished()) {
    const size_t piece = server.wanted();
    ASSERT_GT(piece, 0u);
    ASSERT_EQ(server.feed(stream.substr(read, piece)).value(), piece);
    read += piece;
  }
  EXPECT_EQ(stream.substr(read), "payload");
}

TEST(Hello, AWrongSecretIsNamedAndNothingIsComputedForIt) {
  bool judged = false;
  ServerHandshake server("right", [&](const Hello&) -> Result<void> {
    judged = true;
    return {};
  });
  ClientHandshake client("wrong", sample());
  ASSERT_TRUE(client.feed(take(server.output())));
  const auto fed = server.feed(take(client.output()));
  ASSERT_FALSE(fed);
  EXPECT_FALSE(judged);
  const std::string verdict = server.output();
  EXPECT_EQ(verdict.substr(verdict.size() - 32), std::string(32, '\0'));
  const auto answer = client.feed(verdict);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(answer.error().message(),
            "the secret of job 'digits' differs: set the same PUSHPULL_SECRET or "
            "PUSHPULL_SECRET_FILE on every rank");
  EXPECT_EQ(client.failure(), ClientHandshake::Failure::kSecret);
}

TEST(Hello, ARefusalArrivesAsTheJudgeSaidIt) {
  Error reason(ErrorCode::kAborted, "rank 3 belongs to an earlier run");
  reason.at_rank(3, "node-b").at_key("k").make_restartable();
  ServerHandshake server("s", [&](const Hello&) -> Result<void> { return fail(reason); });
  ClientHandshake client("s", sample());
  const Outcome outcome = converse(server, client, 3);
  ASSERT_TRUE(outcome.server && outcome.client);
  EXPECT_EQ(client.failure(), ClientHandshake::Failure::kRefused);
  EXPECT_EQ(outcome.client->code(), ErrorCode::kAborted);
  EXPECT_EQ(outcome.client->message(), reason.message());
  EXPECT_EQ(outcome.client->rank(), 3);
  EXPECT_EQ(outcome.client->host(), "node-b");
  EXPECT_EQ(outcome.client->key(), "k");
  EXPECT_TRUE(outcome.client->restartable());
}

TEST(Hello, ALongRefusalIsCutBetweenCharacters) {
  std::string text;
  while (text.size() < 5000) text += "ü€";
  ServerHandshake server(
      "s", [&](const Hello&) -> Result<void> { return fail(ErrorCode::kMismatch, text); });
  ClientHandshake client("s", sample());
  const Outcome outcome = converse(server, client);
  ASSERT_TRUE(outcome.client);
  const std::string& got = outcome.client->message();
  EXPECT_GT(got.size(), 2000u);
  EXPECT_LE(got.size(), 2048u);
  EXPECT_TRUE(text.starts_with(got));
  EXPECT_TRUE(got.ends_with("ü") || got.ends_with("€"));
}

std::string hmac(const std::string& secret, const std::string& data) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest, &length);
  return std::string(reinterpret_cast<const char*>(digest), length);
}

// What a later version with other fields would send: the frame and its first two fields are the
// same.
std::string hello_of_protocol(uint16_t protocol, const std::string& challenge,
                              const std::string& secret) {
  const std::string fields = std::string("\x05\0", 2) + "0.2.0" + std::string("\x03\0\0\0", 4) +
                             "fields that this version does not know";
  const auto length = static_cast<uint16_t>(fields.size() + 64);
  std::string hello = "ppul";
  hello += {static_cast<char>(protocol & 0xff), static_cast<char>(protocol >> 8),
            static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
  hello += fields + std::string(32, 'n');
  return hello + hmac(secret, "pushpull client" + challenge.substr(6) + hello);
}

TEST(Hello, AnotherProtocolVersionIsToldWhichIsWhich) {
  ServerHandshake server("s", {});
  const std::string challenge = take(server.output());
  const auto fed = server.feed(hello_of_protocol(2, challenge, "s"));
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().message(), "rank 3 runs pushpull 0.2.0 (protocol 2), rank 0 runs " +
                                       library_version() +
                                       " (protocol 1); install the same version everywhere");
  EXPECT_EQ(fed.error().rank(), 3);
  const std::string verdict = take(server.output());
  EXPECT_NE(verdict.find("rank 3 runs pushpull 0.2.0"), std::string::npos);
  const std::string body = verdict.substr(0, verdict.size() - 32);
  EXPECT_EQ(verdict.substr(body.size()),
            hmac("s", "pushpull server" + challenge.substr(6) + std::string(32, 'n') + body));
}

TEST(Hello, AProtocolVersionCannotBeForged) {
  ServerHandshake server("s", {});
  std::string hello = hello_of_protocol(2, take(server.output()), "s");
  hello[4] = 1;
  ASSERT_FALSE(server.feed(hello));
  EXPECT_FALSE(server.finished());
}

TEST(Hello, AReplayedHelloIsWorthless) {
  ServerHandshake first("s", {});
  ClientHandshake client("s", sample());
  ASSERT_TRUE(client.feed(take(first.output())));
  const std::string recorded = take(client.output());
  ASSERT_TRUE(first.feed(recorded));
  ASSERT_TRUE(first.finished());
  ServerHandshake second("s", {});
  EXPECT_FALSE(second.feed(recorded));
  EXPECT_FALSE(second.finished());
  // Nor does a recorded verdict convince a new client.
  const std::string verdict = take(first.output());
  ClientHandshake other("s", sample());
  ASSERT_TRUE(other.feed(take(second.output()).substr(0, 38)));
  const auto fed = other.feed(verdict);
  ASSERT_FALSE(fed);
  EXPECT_EQ(other.failure(), ClientHandshake::Failure::kBroken);
}

TEST(Hello, EveryFlippedByteIsNoticed) {
  ServerHandshake probe("s", {});
  ClientHandshake measure("s", sample());
  ASSERT_TRUE(measure.feed(take(probe.output())));
  const size_t length = measure.output().size();
  for (size_t at = 0; at < length; ++at) {
    ServerHandshake server("s", {});
    ClientHandshake client("s", sample());
    ASSERT_TRUE(client.feed(take(server.output())));
    std::string hello = take(client.output());
    hello[at] = static_cast<char>(hello[at] ^ 0x20);
    // A larger length only makes the server wait for more, which never comes.
    (void)server.feed(hello);
    EXPECT_FALSE(server.finished()) << at;
  }
}

TEST(Hello, EveryFlippedByteOfTheVerdictIsNoticed) {
  for (size_t at = 0; at < 35; ++at) {
    ServerHandshake server("s", {});
    ClientHandshake client("s", sample());
    ASSERT_TRUE(client.feed(take(server.output())));
    ASSERT_TRUE(server.feed(take(client.output())));
    std::string verdict = take(server.output());
    ASSERT_EQ(verdict.size(), 35u);
    verdict[at] = static_cast<char>(verdict[at] ^ 0x01);
    (void)client.feed(verdict);
    EXPECT_FALSE(client.finished()) << at;
  }
}

TEST(Hello, GarbageAndImpossibleLengthsFailAtOnce) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x16\x03\x01"), std::string(1, '\0'),
        std::string("ppul\x01\0\xff\xff", 8), std::string("ppul\x01\0\x3f\0", 8)}) {
    ServerHandshake server("s", {});
    server.output().clear();
    EXPECT_FALSE(server.feed(bytes)) << bytes;
    EXPECT_TRUE(server.output().empty());
    EXPECT_FALSE(server.feed("ppul")) << "a failed hello stays failed";
    EXPECT_EQ(server.wanted(), 0u);
  }
  for (const std::string_view bytes : {"HTTP/1.1 400 Bad Request", "SSH-2.0-OpenSSH", "+PONG"}) {
    ClientHandshake client("s", sample());
    EXPECT_FALSE(client.feed(bytes));
    EXPECT_EQ(client.failure(), ClientHandshake::Failure::kBroken);
  }
}

TEST(Hello, AnOversizedVerdictIsNotWaitedFor) {
  ServerHandshake server("s", {});
  ClientHandshake client("s", sample());
  ASSERT_TRUE(client.feed(take(server.output())));
  EXPECT_FALSE(client.feed(std::string("\x01\xff\xff", 3)));
}

TEST(Hello, FieldsThatAreTooLongAreTheCallersMistake) {
  Hello longest = sample();
  longest.job = std::string(kMaxJobBytes, 'j');
  longest.detail = std::string(kMaxDetailBytes, 'd');
  ServerHandshake server("s", {});
  ClientHandshake fits("s", longest);
  converse(server, fits);
  EXPECT_TRUE(fits.finished());

  longest.job += 'j';
  ServerHandshake other("s", {});
  ClientHandshake client("s", longest);
  const Outcome outcome = converse(other, client);
  ASSERT_TRUE(outcome.client);
  EXPECT_EQ(outcome.client->code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(outcome.client->message(), "the job name has 256 bytes, at most 255 are possible");
  EXPECT_EQ(client.failure(), ClientHandshake::Failure::kRefused);
}

TEST(Hello, RandomNamesDiffer) {
  EXPECT_EQ(random_id().size(), 32u);
  EXPECT_EQ(random_secret().size(), 64u);
  EXPECT_NE(random_id(), random_id());
  EXPECT_EQ(random_secret().find_first_not_of("0123456789abcdef"), std::string::npos);
}

}  // namespace
}  // namespace pushpull
