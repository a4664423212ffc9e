// The Redis store against servers that misbehave on the wire, and connections that break.
#include <csignal>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "tests/stores/redis_test.h"
#include "tests/support/raw_server.h"

namespace pushpull::testing {
namespace {

std::string encode(const std::vector<std::string>& words) {
  std::string text = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) text += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return text;
}

// What to do with the reply of the real server.
enum class Verdict { kPass, kDrop, kHalf };

// Between client and a real server; `judge` sees each command and may lose its reply, after the
// server has carried it out.
class LossyProxy {
 public:
  using Judge = std::function<Verdict(const std::vector<std::string>&)>;
  LossyProxy(uint16_t server, Judge judge)
      : judge_(std::move(judge)), front_([this, server](RawConnection& client, int) {
          const std::stop_source stop;
          auto back = RawConnection::to(server, stop.get_token());
          for (;;) {
            const auto words = client.command();
            if (words.empty() || !back.write(encode(words))) return;
            const std::string reply = back.read();
            Verdict verdict;
            {
              const std::scoped_lock lock(mutex_);
              verdict = judge_(words);
            }
            if (verdict == Verdict::kHalf) client.write(reply.substr(0, reply.size() / 2));
            if (verdict != Verdict::kPass || !client.write(reply)) return;
          }
        }) {}
  std::string url() const { return front_.url(); }
  int connections() const { return front_.connections(); }

 private:
  std::mutex mutex_;
  Judge judge_;
  RawServer front_;
};

class RedisWireTest : public RedisTest {};

// --- silent, slow, and broken
// ----------------------------------------------------------------------

TEST_F(RedisWireTest, AServerThatAcceptsAndNeverAnswers) {
  RawServer server([](RawConnection& c, int) { c.hold(); });
  const Error login = error_within(600ms, "AUTH", [&](Deadline deadline) {
    return refusal(options(server.url(), "me", "secret4"), deadline);
  });
  expect_error(login, ErrorCode::kTimeout,
               {server.url() + "/0 does not answer (AUTH was not answered in time)"});
  EXPECT_EQ(login.message().find("secret4"), std::string::npos);
  auto store = open(options(server.url()));
  ASSERT_NE(store, nullptr);
  const Error error = error_within(400ms, "SET", [&](Deadline deadline) {
    return error_of(store->set("pushpull:a", "b", deadline));
  });
  expect_error(error, ErrorCode::kTimeout, {"SET was not answered in time"});
}

TEST_F(RedisWireTest, AServerThatAnswersAByteAtATime) {
  const auto trickle = [](RawConnection& c) {
    for (const char byte : "$60000\r\n" + std::string(60000, 'x')) {
      if (!c.write({&byte, 1})) return;
      std::this_thread::sleep_for(20ms);
    }
  };
  RawServer unasked([&](RawConnection& c, int) { trickle(c); });
  RawServer asked([&](RawConnection& c, int) {
    while (!c.command().empty()) trickle(c);
  });
  for (const RawServer* server : {&unasked, &asked}) {
    auto store = open(options(server->url()));
    ASSERT_NE(store, nullptr);
    const Error error = error_within(700ms, "GET", [&](Deadline deadline) {
      return error_of(store->get("pushpull:a", deadline));
    });
    expect_error(error, ErrorCode::kTimeout, {"GET was not answered in time"});
  }
}

TEST_F(RedisWireTest, AServerThatClosesAfterTheLogin) {
  RawServer server([](RawConnection& c, int) {
    c.command();
    c.write("+OK\r\n");
  });
  auto store = open(options(server.url(), "me", "secret5"));
  ASSERT_NE(store, nullptr);
  const Error error = error_within(600ms, "closed the connection", [&](Deadline deadline) {
    return error_of(store->get("pushpull:a", deadline));
  });
  expect_error(
      error, ErrorCode::kUnavailable,
      {server.url() + "/0 closed the connection", "instead of answering GET; gave up after"});
  EXPECT_EQ(error.message().find("secret5"), std::string::npos);
}

TEST_F(RedisWireTest, AServerThatClosesOrResetsAtOnce) {
  for (const bool reset : {false, true}) {
    RawServer server([reset](RawConnection& c, int) {
      c.command();
      reset ? c.reset() : c.close();
    });
    const Error error = error_within(600ms, "closed the connection", [&](Deadline deadline) {
      return refusal(options(server.url(), "", "secret6"), deadline);
    });
    expect_error(error, ErrorCode::kUnavailable,
                 {"closed the connection", reset ? "reset by peer" : "", "gave up after"});
  }
}

TEST_F(RedisWireTest, AConnectionThatBreaksInTheMiddleOfAReplyIsMadeAnew) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  int lost = 0;
  LossyProxy proxy(server->port(), [&](const auto& words) {
    if (words[0] != "GET" || lost == 3) return Verdict::kPass;
    return ++lost % 2 == 1 ? Verdict::kHalf : Verdict::kDrop;
  });
  auto store = open(options(proxy.url()));
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->set("pushpull:a", "the whole value", soon()));
  const auto value = store->get("pushpull:a", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(value->value_or("(absent)"), "the whole value");
  EXPECT_EQ(lost, 3);
  EXPECT_GE(proxy.connections(), 4);
}

TEST_F(RedisWireTest, WritingToAClosedConnectionDoesNotKillTheProcess) {
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &before), 0);
  ASSERT_EQ(before.sa_handler, SIG_DFL);  // else this test could not fail
  // Broken between the login's answer and the next command.
  RawServer server([](RawConnection& c, int) {
    c.command();
    c.write("+OK\r\n");
    c.break_pipe();
  });
  for (int i = 0; i < 5; ++i) {
    auto store = open(options(server.url(), "me", "pw"));
    ASSERT_NE(store, nullptr);
    EXPECT_FALSE(store->set("pushpull:a", "value", deadline_in(100ms)).has_value());
  }
}

// --- repeated only where that does no harm
// ----------------------------------------------------------

TEST_F(RedisWireTest, AnAddWhoseReplyIsLostCountsOnce) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  for (const Verdict loss : {Verdict::kDrop, Verdict::kHalf}) {
    int lost = 0;
    LossyProxy proxy(server->port(), [&](const auto& words) {
      return words[0] == "EVAL" && ++lost <= 3 ? loss : Verdict::kPass;
    });
    auto store = open(options(proxy.url()));
    ASSERT_NE(store, nullptr);
    server->cli({"FLUSHALL"});
    auto sum = store->add("pushpull:ranks", 5, soon());
    ASSERT_TRUE(sum) << sum.error().message();
    EXPECT_EQ(*sum, 5);
    EXPECT_EQ(lost, 4);
    sum = store->add("pushpull:ranks", 5, soon());
    ASSERT_TRUE(sum) << sum.error().message();
    EXPECT_EQ(*sum, 10);
    EXPECT_EQ(server->cli({"KEYS", "*"}), "pushpull:ranks");
  }
}

TEST_F(RedisWireTest, ASetIfAbsentWhoseReplyIsLostKeepsItsOutcome) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  int lost = 0;
  LossyProxy proxy(server->port(), [&](const auto& words) {
    return words[0] == "EVAL" && ++lost <= 2 ? Verdict::kDrop : Verdict::kPass;
  });
  auto store = open(options(proxy.url()));
  ASSERT_NE(store, nullptr);
  auto value = store->set_if_absent("pushpull:run", "mine", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "mine");
  lost = 0;
  ASSERT_TRUE(store->remove_if("pushpull:run", "mine", soon()));
  EXPECT_EQ(server->cli({"DBSIZE"}), "0");
}

// --- error replies that a test cannot get from a real server at will
// ---------------------------------

TEST_F(RedisWireTest, RepliesThatMayBecomeGoodAreAskedAgain) {
  for (const std::string reply :
       {"-LOADING Redis is loading the dataset in memory",
        "-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
        "-TRYAGAIN Multiple keys request during rehashing of slot",
        "-BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "-NOREPLICAS Not enough good replicas to write."}) {
    int asked = 0;
    RawServer server([&](RawConnection& c, int) {
      while (!c.command().empty()) c.write(++asked <= 3 ? reply + "\r\n" : "$4\r\ngood\r\n");
    });
    auto store = open(options(server.url()));
    ASSERT_NE(store, nullptr);
    const auto value = store->get("pushpull:a", soon());
    ASSERT_TRUE(value) << value.error().message();
    EXPECT_EQ(value->value_or("(absent)"), "good");
    EXPECT_EQ(server.connections(), 1) << reply;  // asked again over the same connection
  }
}

TEST_F(RedisWireTest, RepliesThatStayBadAreSaidAtOnce) {
  const std::vector<std::pair<std::string, std::string>> replies{
      {"-MOVED 3999 127.0.0.1:6381", "is a node of a Redis Cluster"},
      {"-ASK 3999 127.0.0.1:6381", "is a node of a Redis Cluster"},
      {"-DENIED Redis is running in protected mode because protected mode is enabled",
       "is in protected mode"},
      {"-ERR something new", "answered GET with the error \"ERR something new\""},
      {":12", "gave GET an answer that Redis does not give"},
      {"+OK", "gave GET an answer that Redis does not give"}};
  for (const auto& [reply, meaning] : replies) {
    RawServer server([&text = reply](RawConnection& c, int) {
      while (!c.command().empty()) c.write(text + "\r\n");
    });
    auto store = open(options(server.url()));
    ASSERT_NE(store, nullptr);
    const auto start_time = Clock::now();
    expect_error(store->get("pushpull:a", soon()), ErrorCode::kUnavailable, {meaning});
    EXPECT_LT(Clock::now() - start_time, kAtOnce);
  }
}

// --- not a Redis
// --------------------------------------------------------------------------------------

TEST_F(RedisWireTest, WhatIsNoRedisIsSaidAtOnce) {
  const std::vector<std::pair<std::string, std::string>> answers{
      {"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "\"HTTP/1.1 400 Bad Request"},
      {"SSH-2.0-OpenSSH_9.2\r\n", "\"SSH-2.0-OpenSSH_9.2"},
      {std::string("\0\xff\x10garbage", 10), "garbage"},
      {"*2\r\n:1\r\n:2\r\n", "is not a Redis"},
      {"*2000000000\r\n", "is not a Redis"},
      {"$99999999999999\r\n" + std::string(2u << 20, 'x'), "is not a Redis"},
      {"$5\r\nabcdefgh\r\n", "is not a Redis"},
      {"$3\r\nabc\r\n+more\r\n", "is not a Redis"}};
  for (const auto& [answer, meaning] : answers) {
    RawServer server([&text = answer](RawConnection& c, int) {
      c.command();
      c.write(text);
      c.hold();
    });
    auto store = open(options(server.url()));
    ASSERT_NE(store, nullptr);
    const auto start_time = Clock::now();
    expect_error(store->get("pushpull:a", soon()), ErrorCode::kUnavailable,
                 {server.url() + "/0", meaning, "host and port"});
    EXPECT_LT(Clock::now() - start_time, kAtOnce);
  }
}

TEST_F(RedisWireTest, AServerThatRepeatsWhatItHearsLearnsUsNothingToPrint) {
  RawServer echo([](RawConnection& c, int) {
    for (std::string bytes; !(bytes = c.read()).empty();) c.write(bytes);
  });
  const Error error = refusal(options(echo.url(), "", "pw7"));
  expect_error(error, ErrorCode::kUnavailable, {"is not a Redis"});
  EXPECT_EQ(error.message().find("pw7"), std::string::npos) << error.message();
  auto store = open(options(echo.url()));
  ASSERT_NE(store, nullptr);
  const auto done = store->set("k", "v8", soon());
  expect_error(done, ErrorCode::kUnavailable, {"is not a Redis"});
  EXPECT_EQ(done.error().message().find("v8"), std::string::npos) << done.error().message();
}

TEST_F(RedisWireTest, AnUnknownAuthDoesNotBringThePasswordIntoTheMessage) {
  RawServer server([](RawConnection& c, int) {
    while (true) {
      const auto words = c.command();
      if (words.empty()) return;
      c.write(fmt::format("-ERR unknown command `{}`, with args beginning with: `{}`, \r\n",
                          words[0], words.back()));
    }
  });
  const Error error = refusal(options(server.url(), "", "pw9"));
  expect_error(error, ErrorCode::kUnavailable, {"does not know the command AUTH"});
  EXPECT_EQ(error.message().find("pw9"), std::string::npos) << error.message();
}

}  // namespace
}  // namespace pushpull::testing
