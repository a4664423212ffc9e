// Parts of the Redis store that need no server: the URL, the meaning of error replies, the
// protocol.
#include <gtest/gtest.h>

#include <chrono>

#include "backends/rendezvous/redis/redis_client.h"
#include "backends/rendezvous/redis/redis_error.h"
#include "backends/rendezvous/redis/redis_protocol.h"
#include "backends/rendezvous/redis/redis_url.h"

namespace pushpull::redis {
namespace {

Result<RedisTarget> parse(std::string url, std::string user = {}, std::string password = {}) {
  StoreOptions options;
  options.url = std::move(url);
  options.user = std::move(user);
  options.password = std::move(password);
  return parse_redis_url(options);
}

TEST(RedisUrl, ReadsEveryPart) {
  struct Case {
    const char* url;
    const char* host;
    int port;
    int database;
    const char* user;
    const char* password;
    const char* description;
  };
  for (const Case& c : {
           Case{"redis://h", "h", 6379, 0, "", "", "redis://h:6379/0"},
           Case{"redis://h/", "h", 6379, 0, "", "", "redis://h:6379/0"},
           Case{"redis://h:7000", "h", 7000, 0, "", "", "redis://h:7000/0"},
           Case{"redis://h:7000/12", "h", 7000, 12, "", "", "redis://h:7000/12"},
           Case{"redis://u@h", "h", 6379, 0, "u", "", "redis://h:6379/0"},
           Case{"redis://u:p@h", "h", 6379, 0, "u", "p", "redis://h:6379/0"},
           Case{"redis://:p@h", "h", 6379, 0, "", "p", "redis://h:6379/0"},
           Case{"redis://u:p:q@r@h:1", "h", 1, 0, "u", "p:q@r", "redis://h:1/0"},
           Case{"redis://a%40b:c%2Fd%3a@h", "h", 6379, 0, "a@b", "c/d:", "redis://h:6379/0"},
           Case{"redis://[::1]", "::1", 6379, 0, "", "", "redis://[::1]:6379/0"},
           Case{"redis://u:p@[fe80::1]:7/2", "fe80::1", 7, 2, "u", "p", "redis://[fe80::1]:7/2"},
           Case{"redis://a.b.svc.cluster.local:6379/0", "a.b.svc.cluster.local", 6379, 0, "", "",
                "redis://a.b.svc.cluster.local:6379/0"},
       }) {
    const auto target = parse(c.url);
    ASSERT_TRUE(target) << target.error().message();
    EXPECT_EQ(target->host, c.host) << c.url;
    EXPECT_EQ(target->port, c.port) << c.url;
    EXPECT_EQ(target->database, c.database) << c.url;
    EXPECT_EQ(target->user, c.user) << c.url;
    EXPECT_EQ(target->password, c.password) << c.url;
    EXPECT_EQ(target->description(), c.description);
  }
}

TEST(RedisUrl, OptionsWinOverTheUrl) {
  const auto target = parse("redis://u:p@h", "user", "password");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->user, "user");
  EXPECT_EQ(target->password, "password");
}

TEST(RedisUrl, RefusesWhatItCannotReadWithoutShowingALogin) {
  for (const char* url : {"",
                          "redis",
                          "redis:/h",
                          "redis://",
                          "redis:///0",
                          "redis://:6379",
                          "redis://u:hidden@",
                          "redis://u:hidden@h:",
                          "redis://u:hidden@h:0",
                          "redis://u:hidden@h:65536",
                          "redis://u:hidden@h:x",
                          "redis://u:hidden@h/x",
                          "redis://u:hidden@h/-1",
                          "redis://u:hidden@h/0?x=y",
                          "redis://u:hidden%4@h",
                          "redis://u:hidden%zz@h",
                          "redis://u:hidden@[::1",
                          "redis://u:hidden@[::1]x",
                          "redis://u:hidden@::1",
                          "tcp://u:hidden@h",
                          "http://u:hidden@h",
                          "u:hidden@h",
                          "unix:///run/redis.sock"}) {
    const auto target = parse(url);
    ASSERT_FALSE(target) << url;
    EXPECT_EQ(target.error().code(), ErrorCode::kInvalidArgument) << url;
    EXPECT_EQ(target.error().message().find("hidden"), std::string::npos)
        << target.error().message();
    EXPECT_NE(target.error().message().find("redis://[user[:password]@]host"), std::string::npos);
  }
}

TEST(RedisUrl, SaysThatThereIsNoTls) {
  const auto target = parse("rediss://u:hidden@h:6380/1");
  ASSERT_FALSE(target);
  EXPECT_EQ(target.error().code(), ErrorCode::kUnsupported);
  EXPECT_NE(target.error().message().find("'rediss://h:6380/1' asks for TLS"), std::string::npos)
      << target.error().message();
}

TEST(RedisErrors, MeanTheSameFromOldAndNewServers) {
  const Question question{"redis://h:1/0", "me", "EVAL", "GET, SET", "pushpull:j:run"};
  struct Case {
    const char* reply;
    bool retry;
    const char* meaning;
  };
  for (const Case& c : {
           Case{"READONLY You can't write against a read only replica. script: 61, on "
                "@user_script:1.",
                false, "read-only replica"},
           Case{"ERR Error running script (call to f_6a): @user_script:1: @user_script: 1: "
                "-READONLY You can't write against a read only slave. ",
                false, "read-only replica"},
           Case{"ERR Error running script (call to f_6a): @user_script:1: @user_script: 1: -OOM "
                "command not allowed when used memory > 'maxmemory'. ",
                false, "memory limit"},
           Case{"ERR Error running script (call to f_6a): @user_script:1: ERR value is not an "
                "integer or out of range ",
                false, "does not hold a counter"},
           Case{
               "ERR Error running script (call to f_6a): @user_script:1: @user_script: 1: The user "
               "executing the script can't run this command or subcommand ",
               false, "does not let user 'me' run EVAL (with GET, SET)"},
           Case{"ERR Error running script (call to f_6a): @user_script:1: WRONGTYPE Operation "
                "against a key holding the wrong kind of value ",
                false, "holds something that pushpull did not write"},
           Case{"ERR invalid password", false, "refuses the password of user 'me'"},
           Case{"WRONGPASS invalid username-password pair", false, "refuses the password"},
           Case{"ERR wrong number of arguments for 'auth' command", false, "older than Redis 6"},
           Case{"ERR Client sent AUTH, but no password is set", false, "no password set"},
           Case{"ERR invalid DB index", false, "no database of that number"},
           Case{"ERR SELECT is not allowed in cluster mode", false, "Redis Cluster"},
           Case{"CROSSSLOT Keys in request don't hash to the same slot", false, "Redis Cluster"},
           Case{"ERR max number of clients reached", true, "maxclients"},
           Case{"LOADING Redis is loading the dataset in memory", true, "still loading"},
       }) {
    const Fault fault = reply_fault(c.reply, question);
    EXPECT_EQ(fault.retry, c.retry) << c.reply;
    EXPECT_NE(fault.error.message().find(c.meaning), std::string::npos) << fault.error.message();
    EXPECT_NE(fault.error.message().find("redis://h:1/0"), std::string::npos);
  }
}

TEST(RedisErrors, ShowNothingThatIsNotPrintable) {
  const Question question{"redis://h:1/0", "", "GET", "", "pushpull:\x1b[31m"};
  EXPECT_EQ(reply_fault("ERR odd \x1b[31m\x07 text", question).error.message(),
            "redis://h:1/0 answered GET with the error \"ERR odd .[31m. text\"");
  EXPECT_EQ(reply_fault("WRONGTYPE", question).error.message().find('\x1b'), std::string::npos);
}

TEST(RedisErrors, KeyPatternsCoverAllJobs) {
  EXPECT_EQ(key_pattern("pushpull:job:run"), "pushpull:*");
  EXPECT_EQ(key_pattern("single"), "single");
}

TEST(RedisProtocol, RepliesMayComeInAnyPieces) {
  const std::string bytes = "$11\r\nhello\r\nworl\r\n";
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    ReplyReader reader;
    bool sane = false;
    ASSERT_TRUE(reader.feed(bytes.substr(0, cut)));
    EXPECT_FALSE(reader.next(sane));
    EXPECT_TRUE(sane);
    ASSERT_TRUE(reader.feed(bytes.substr(cut)));
    const auto reply = reader.next(sane);
    ASSERT_TRUE(reply && sane);
    EXPECT_EQ(reply->text, "hello\r\nworl");
  }
}

TEST(RedisProtocol, CommandsAreBinarySafe) {
  const std::string value("a\0b\r\n", 5);
  EXPECT_EQ(encode({{"SET", "k", value, ""}}),
            "*4\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\n" + value + "\r\n$0\r\n\r\n");
}

TEST(RedisBackoff, PausesGrowUpToTheLongestAndEndAtTheDeadline) {
  using namespace std::chrono_literals;
  std::minstd_rand random(1);
  Backoff backoff(1ms, 4ms);
  const auto start = Clock::now();
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(backoff.sleep(deadline_in(10s), random));
  EXPECT_GE(Clock::now() - start, 7500us);  // at least half of 1 + 2 + 4 + 4 + 4
  EXPECT_FALSE(backoff.sleep(deadline_in(1ms), random));
  EXPECT_FALSE(backoff.sleep(Clock::now() - 1s, random));
}

}  // namespace
}  // namespace pushpull::redis
