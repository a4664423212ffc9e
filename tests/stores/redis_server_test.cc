// The Redis store against real servers that restart, refuse, load, pause.
#include <atomic>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "tests/stores/redis_test.h"
#include "tests/stores/store_places.h"
#include "tests/support/raw_server.h"

namespace pushpull::testing {
namespace {

class RedisServerTest : public RedisTest {};

// --- a server that comes and goes ---------------------------------------------------------------

TEST_F(RedisServerTest, AServerThatStartsLateIsAwaited) {
  auto server = RedisServer::reserve();
  ASSERT_TRUE(server) << server.error().message();
  std::unique_ptr<Store> store;
  std::jthread opener([&] { store = open(options((*server)->url())); });
  std::this_thread::sleep_for(700ms);
  const auto started = (*server)->start_again();
  ASSERT_TRUE(started) << started.error().message();
  opener.join();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->set("pushpull:late", "here", soon()));
}

TEST_F(RedisServerTest, AServerThatNeverStartsEndsTheWaitAtTheDeadline) {
  const auto server = RedisServer::reserve();
  ASSERT_TRUE(server) << server.error().message();
  const auto before = Clock::now();
  const Error error = error_within(700ms, "Connection refused", [&](Deadline deadline) {
    return refusal(options((*server)->url(), "someone", "secret1"), deadline);
  });
  EXPECT_GE(Clock::now(), before + 700ms);
  expect_error(error, ErrorCode::kUnavailable,
               {(*server)->url() + "/0", "cannot be reached (Connection refused)", "gave up after",
                "attempt", "start it"});
  EXPECT_EQ(error.message().find("secret1"), std::string::npos);
}

TEST_F(RedisServerTest, ARestartInTheMiddleOfAWaitIsSurvived) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  auto waiter = open(*server);
  auto writer = open(*server);
  ASSERT_TRUE(waiter && writer);
  Result<std::string> value = fail(ErrorCode::kAborted, "not run");
  std::jthread waiting([&] { value = waiter->wait("pushpull:job:run", "", soon()); });
  std::this_thread::sleep_for(200ms);
  server->kill();
  std::this_thread::sleep_for(200ms);
  ASSERT_TRUE(server->start_again());
  EXPECT_TRUE(writer->set("pushpull:job:run", "after", soon()));
  waiting.join();
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "after");
}

TEST_F(RedisServerTest, AfterAReconnectItIsTheSameUserAndDatabase) {
  auto server = start({.password = "open sesame", .config = {}});
  ASSERT_NE(server, nullptr);
  auto store = open(options(server->url() + "/5", {}, "open sesame"));
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->set("pushpull:a", "before", soon()));
  EXPECT_EQ(server->cli({"-n", "5", "GET", "pushpull:a"}), "before");
  ASSERT_TRUE(server->start_again());
  EXPECT_TRUE(store->set("pushpull:b", "after", soon()));
  EXPECT_EQ(server->cli({"-n", "5", "GET", "pushpull:b"}), "after");
  server->cli({"CLIENT", "KILL", "TYPE", "normal"});
  EXPECT_TRUE(store->set("pushpull:c", "again", soon()));
  EXPECT_EQ(server->cli({"-n", "5", "GET", "pushpull:c"}), "again");
  EXPECT_EQ(server->cli({"-n", "0", "DBSIZE"}), "0");
}

TEST_F(RedisServerTest, EightRanksConnectWhileTheServerRestartsTenTimes) {
  constexpr int kRanks = 8;
  constexpr int kRestarts = 10;
  auto server = start();
  ASSERT_NE(server, nullptr);
  std::atomic<bool> restarting{true};
  std::atomic<int> finding{kRanks - 1};
  std::vector<std::string> outcomes(kRanks);
  // Rank 0 publishes until all have found it, as a server that comes back empty makes it do.
  const auto publish = [&](Store& store) -> std::string {
    while (finding > 0) {
      if (auto done = store.set("pushpull:job:run", "run", soon()); !done) {
        return done.error().message();
      }
      std::this_thread::sleep_for(20ms);
    }
    return "run";
  };
  const auto find = [&](Store& store) -> std::string {
    std::string outcome;
    for (bool last = false; !last;) {
      last = !restarting;
      const auto value = store.wait("pushpull:job:run", "", soon());
      outcome = value ? *value : value.error().message();
      if (!value) break;
    }
    return outcome;
  };
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        auto store = open(*server);
        auto& outcome = outcomes[static_cast<size_t>(rank)];
        if (store) outcome = rank == 0 ? publish(*store) : find(*store);
        if (rank > 0) --finding;
      });
    }
    for (int i = 0; i < kRestarts; ++i) {
      std::this_thread::sleep_for(100ms);
      EXPECT_TRUE(server->start_again());
    }
    restarting = false;
  }
  EXPECT_EQ(outcomes, std::vector<std::string>(kRanks, "run"));
}

TEST_F(RedisServerTest, AFlushIsLikeNeverHavingBeenThere) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  ASSERT_TRUE(store->set("pushpull:run", "gone", soon()));
  EXPECT_EQ(server->cli({"FLUSHALL"}), "OK");
  const auto value = store->get("pushpull:run", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_FALSE(value->has_value());
  const Error error = error_within(200ms, "did not appear", [&](Deadline deadline) {
    return error_of(store->wait("pushpull:run", "", deadline));
  });
  expect_error(error, ErrorCode::kTimeout, {"pushpull:run", "did not appear"});
}

TEST_F(RedisServerTest, APausedServerEndsTheWaitAtTheDeadlineAndWorksAfterwards) {
  auto server = start({.password = "secret2", .config = {}});
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  server->pause();
  const auto says = [&](Duration limit, const std::string& about, const auto& ask) {
    expect_error(error_within(limit, about, ask), ErrorCode::kTimeout, {server->url(), about});
  };
  says(500ms, "does not answer (GET was not answered",
       [&](Deadline deadline) { return error_of(store->get("pushpull:a", deadline)); });
  says(2500ms, "2 attempts",
       [&](Deadline deadline) { return error_of(store->wait("pushpull:a", "", deadline)); });
  says(300ms, "does not answer (AUTH was not answered",
       [&](Deadline deadline) { return refusal(options(*server), deadline); });
  server->resume();
  EXPECT_TRUE(store->set("pushpull:a", "b", soon()));
}

TEST_F(RedisServerTest, AServerThatIsLoadingIsAwaited) {
  // 6,000 keys at 0.5 ms each, and a look at the clients every kilobyte.
  auto server =
      start({.password = {},
             .config = {"key-load-delay 500", "loading-process-events-interval-bytes 1024"}});
  ASSERT_NE(server, nullptr);
  EXPECT_EQ(server->cli({"DEBUG", "POPULATE", "6000"}), "OK");
  EXPECT_EQ(server->cli({"SAVE"}), "OK");
  ASSERT_TRUE(server->start_again(RedisServer::Until::kListening));
  auto early = open(*server);  // connecting needs no data
  ASSERT_NE(early, nullptr);
  const Error error = error_within(500ms, "still loading", [&](Deadline deadline) {
    return error_of(early->get("pushpull:a", deadline));
  });
  expect_error(error, ErrorCode::kUnavailable, {"is still loading its data; gave up after"});
  const auto value = early->set_if_absent("pushpull:a", "loaded", soon());
  ASSERT_TRUE(value) << value.error().message();
  EXPECT_EQ(*value, "loaded");
  EXPECT_EQ(server->cli({"DBSIZE"}), "6001");
}

TEST_F(RedisServerTest, AServerWithoutAFreePlaceIsAwaited) {
  auto server = start({.password = {}, .config = {"maxclients 1"}});
  ASSERT_NE(server, nullptr);
  auto first = open(*server);
  ASSERT_NE(first, nullptr);
  ASSERT_TRUE(first->set("pushpull:a", "b", soon()));
  auto second = open(*server);  // the kernel connects, Redis has not said anything yet
  ASSERT_NE(second, nullptr);
  const Error error = error_within(500ms, "gave up after", [&](Deadline deadline) {
    return error_of(second->get("pushpull:a", deadline));
  });
  expect_error(error, ErrorCode::kUnavailable, {server->url(), "gave up after"});
  first.reset();
  const auto value = second->get("pushpull:a", soon());
  ASSERT_TRUE(value) << value.error().message();
}

// --- logins and permissions ----------------------------------------------------------------------

TEST_F(RedisServerTest, AWrongPasswordIsRefusedAtOnce) {
  auto server = start({.password = "right", .config = {"user alice on >wonder ~* +@all"}});
  ASSERT_NE(server, nullptr);
  const auto start_time = Clock::now();
  for (const auto& [user, password] :
       {std::pair("", "wr0ng"), {"alice", "wr0ng"}, {"bob", "wr0ng"}, {"alice", ""}}) {
    const Error error = refusal(options(server->url(), user, password));
    expect_error(error, ErrorCode::kInvalidArgument,
                 {server->url() + "/0 refuses the password of user '",
                  *user == '\0' ? "'default'" : user, "PUSHPULL_REDIS_PASSWORD_FILE"});
    EXPECT_EQ(error.message().find("wr0ng"), std::string::npos) << error.message();
  }
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, AMissingPasswordIsSaidAtOnce) {
  auto server = start({.password = "right", .config = {}});
  ASSERT_NE(server, nullptr);
  auto store = open(options(server->url()));
  ASSERT_NE(store, nullptr);
  const auto start_time = Clock::now();
  expect_error(store->get("pushpull:a", soon()), ErrorCode::kInvalidArgument,
               {server->url() + "/0 asks for a password", "PUSHPULL_REDIS_PASSWORD"});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, APasswordWhereNoneIsSetIsSaidAtOnce) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  const Error error = refusal(options(server->url(), "", "superfluous"));
  expect_error(error, ErrorCode::kInvalidArgument, {"has no password set"});
  EXPECT_EQ(error.message().find("superfluous"), std::string::npos);
}

TEST_F(RedisServerTest, LoginsMayStandInTheUrlButAreNeverShown) {
  auto server =
      start({.password = {}, .config = {"user al@ice on >won:der/% ~* +@all", "user default off"}});
  ASSERT_NE(server, nullptr);
  const std::string place = fmt::format("127.0.0.1:{}", server->port());
  auto store = open(options("redis://al%40ice:won%3Ader%2f%25@" + place));
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->set("pushpull:a", "b", soon()));
  EXPECT_EQ(store->description(), "redis://" + place + "/0");
  // What the options say wins.
  EXPECT_NE(open(options("redis://al%40ice:wrong@" + place, {}, "won:der/%")), nullptr);
  const Error error = refusal(options("redis://al%40ice:unseen@" + place));
  EXPECT_EQ(error.message().find("unseen"), std::string::npos) << error.message();
}

TEST_F(RedisServerTest, ADatabaseThatIsNotThereIsSaidAtOnce) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  expect_error(Result<void>(fail(refusal(options(server->url() + "/99")))),
               ErrorCode::kInvalidArgument, {server->url() + "/99 has no database of that number"});
}

// Every operation in turn, and the first error.
Result<void> use_all(Store& store, const std::string& key) {
  if (auto done = store.set(key, "1", soon()); !done) return done;
  if (auto done = store.get(key, soon()); !done) return fail(done.error());
  if (auto done = store.set_if_absent(key, "2", soon()); !done) return fail(done.error());
  if (auto done = store.add(key, 1, soon()); !done) return fail(done.error());
  return store.remove_if(key, "2", soon());
}

TEST_F(RedisServerTest, TheDocumentedPermissionsAreEnoughAndEachIsNeeded) {
  const std::string line = redis_acl_line("pw");
  auto server = start({.password = {}, .config = {line}});
  ASSERT_NE(server, nullptr) << line;
  const auto as_user = options(server->url() + "/1", "pushpull", "pw");
  {
    auto store = open(as_user);
    ASSERT_NE(store, nullptr);
    const auto done = use_all(*store, "pushpull:job:run");
    EXPECT_TRUE(done) << done.error().message();
  }
  for (const std::string command : {"get", "set", "del", "eval", "incrby", "pexpire", "select"}) {
    ASSERT_NE(line.find(" +" + command), std::string::npos) << line;
    EXPECT_EQ(server->cli({"ACL", "SETUSER", "pushpull", "-" + command}), "OK");
    auto factory = registry_.store("redis");
    ASSERT_TRUE(factory);
    auto store = (*factory)->open(as_user, soon());
    const Result<void> done =
        store ? use_all(**store, "pushpull:job:run") : Result<void>(fail(store.error()));
    ASSERT_FALSE(done) << "without +" << command;
    EXPECT_EQ(done.error().code(), ErrorCode::kInvalidArgument) << done.error().message();
    EXPECT_NE(done.error().message().find("does not let user 'pushpull'"), std::string::npos)
        << done.error().message();
    EXPECT_EQ(server->cli({"ACL", "SETUSER", "pushpull", "+" + command}), "OK");
  }
}

TEST_F(RedisServerTest, AMissingPermissionNamesCommandAndKeyPattern) {
  auto server = start({.password = {},
                       .config = {"user reader on >pw ~pushpull:* -@all +get",
                                  "user other on >pw ~other:* +@all"}});
  ASSERT_NE(server, nullptr);
  const auto start_time = Clock::now();
  auto reader = open(options(server->url(), "reader", "pw"));
  auto other = open(options(server->url(), "other", "pw"));
  ASSERT_TRUE(reader && other);
  EXPECT_TRUE(reader->get("pushpull:job:run", soon()));
  expect_error(reader->set("pushpull:job:run", "value0", soon()), ErrorCode::kInvalidArgument,
               {"does not let user 'reader' run SET", "pushpull:job:run", "~pushpull:*"});
  expect_error(reader->set_if_absent("pushpull:job:run", "value0", soon()),
               ErrorCode::kInvalidArgument,
               {"does not let user 'reader' run EVAL (with GET, SET)", "~pushpull:*"});
  expect_error(other->get("pushpull:job:run", soon()), ErrorCode::kInvalidArgument,
               {"does not let user 'other' run GET", "~pushpull:*"});
  EXPECT_EQ(server->cli({"ACL", "SETUSER", "reader", "+eval"}), "OK");
  expect_error(reader->add("pushpull:job:ranks", 1, soon()), ErrorCode::kInvalidArgument,
               {"does not let user 'reader' run EVAL (with GET, SET, INCRBY, PEXPIRE)"});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

// --- servers that are of no use ------------------------------------------------------------------

TEST_F(RedisServerTest, AReadOnlyReplicaIsSaidAtOnce) {
  auto master = start();
  ASSERT_NE(master, nullptr);
  auto replica =
      start({.password = {}, .config = {fmt::format("replicaof 127.0.0.1 {}", master->port())}});
  ASSERT_NE(replica, nullptr);
  auto store = open(*replica);
  ASSERT_NE(store, nullptr);
  const auto start_time = Clock::now();
  const std::string meaning = replica->url() + "/0 is a read-only replica";
  expect_error(store->set("pushpull:a", "b", soon()), ErrorCode::kUnavailable, {meaning, "master"});
  expect_error(store->set_if_absent("pushpull:a", "b", soon()), ErrorCode::kUnavailable, {meaning});
  expect_error(store->add("pushpull:n", 1, soon()), ErrorCode::kUnavailable, {meaning});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, AReplicaThatLostItsMasterIsAwaitedUntilItIsPromoted) {
  auto replica = start({.password = {},
                        .config = {fmt::format("replicaof 127.0.0.1 {}", free_port()),
                                   "replica-serve-stale-data no"}});
  ASSERT_NE(replica, nullptr);
  auto store = open(*replica);
  ASSERT_NE(store, nullptr);
  const Error error = error_within(300ms, "lost its master", [&](Deadline deadline) {
    return error_of(store->get("pushpull:a", deadline));
  });
  expect_error(error, ErrorCode::kUnavailable,
               {"is a replica that lost its master; gave up after"});
  Result<std::string> value = fail(ErrorCode::kAborted, "not run");
  std::jthread setting([&] { value = store->set_if_absent("pushpull:a", "promoted", soon()); });
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(replica->cli({"REPLICAOF", "NO", "ONE"}), "OK");
  setting.join();
  ASSERT_TRUE(value) << value.error().message();
}

TEST_F(RedisServerTest, AClusterNodeIsSaidAtOnce) {
  auto server = start({.password = {}, .config = {"cluster-enabled yes"}});
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  const auto start_time = Clock::now();
  expect_error(store->set("pushpull:a", "b", soon()), ErrorCode::kUnavailable,
               {server->url() + "/0 is a node of a Redis Cluster"});
  expect_error(Result<void>(fail(refusal(options(server->url() + "/1")))), ErrorCode::kUnavailable,
               {"is a node of a Redis Cluster"});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, AFullServerIsSaidAtOnce) {
  auto server = start({.password = {}, .config = {"maxmemory 1"}});
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  const auto start_time = Clock::now();
  expect_error(store->set("pushpull:a", "b", soon()), ErrorCode::kUnavailable,
               {"has reached its memory limit", "maxmemory"});
  expect_error(store->set_if_absent("pushpull:a", "b", soon()), ErrorCode::kUnavailable,
               {"has reached its memory limit"});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, AServerThatCannotSaveIsSaidAtOnce) {
  auto server = start({.password = {}, .config = {"save 3600 1000000"}});
  ASSERT_NE(server, nullptr);
  // A directory in the place of its file makes saving fail, for root too.
  std::filesystem::create_directories(server->directory() + "/dump.rdb/occupied");
  server->cli({"BGSAVE"});
  const Deadline deadline = soon();
  while (server->cli({"INFO", "persistence"}).find("rdb_last_bgsave_status:err") ==
         std::string::npos) {
    ASSERT_LT(Clock::now(), deadline);
    std::this_thread::sleep_for(20ms);
  }
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  expect_error(store->set("pushpull:a", "b", soon()), ErrorCode::kUnavailable,
               {"cannot save its data to disk"});
  expect_error(store->set_if_absent("pushpull:a", "b", soon()), ErrorCode::kUnavailable,
               {"cannot save its data to disk"});
}

TEST_F(RedisServerTest, ATlsPortIsSaidAtOnce) {
  auto server = start({.password = {}, .config = {}, .tls = true});
  ASSERT_NE(server, nullptr);
  const auto start_time = Clock::now();
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  expect_error(store->get("pushpull:a", soon()), ErrorCode::kUnavailable,
               {server->url() + "/0 speaks TLS at this port"});
  expect_error(Result<void>(fail(refusal(options(server->url(), "", "secret3")))),
               ErrorCode::kUnavailable, {"speaks TLS at this port"});
  EXPECT_LT(Clock::now() - start_time, kAtOnce);
}

TEST_F(RedisServerTest, ARedisThatDoesNotKnowACommandIsSaidAtOnce) {
  auto server = start({.password = {}, .config = {"rename-command EVAL \"\""}});
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  const auto done = store->set_if_absent("pushpull:a", "value1", soon());
  expect_error(done, ErrorCode::kUnavailable, {"does not know the command EVAL"});
  EXPECT_EQ(done.error().message().find("value1"), std::string::npos);
}

TEST_F(RedisServerTest, AKeyOfAnotherKindIsSaidAtOnce) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  auto store = open(*server);
  ASSERT_NE(store, nullptr);
  EXPECT_EQ(server->cli({"LPUSH", "pushpull:list", "1"}), "1");
  const std::string meaning = "pushpull:list at " + server->url() + "/0 holds something";
  expect_error(store->get("pushpull:list", soon()), ErrorCode::kInvalidArgument, {meaning});
  expect_error(store->set_if_absent("pushpull:list", "a", soon()), ErrorCode::kInvalidArgument,
               {meaning});
}

// --- names and addresses
// --------------------------------------------------------------------------

TEST_F(RedisServerTest, NamesAndIPv6AddressesWork) {
  auto server = start();
  ASSERT_NE(server, nullptr);
  for (const std::string host : {"localhost", "[::1]", "127.0.0.1"}) {
    auto store = open(options(fmt::format("redis://{}:{}", host, server->port())));
    ASSERT_NE(store, nullptr) << host;
    EXPECT_TRUE(store->trusted()) << host;
    EXPECT_TRUE(store->set("pushpull:a", host, soon())) << host;
  }
}

TEST_F(RedisServerTest, ANameThatCannotBeResolvedEndsTheWaitAtTheDeadline) {
  const Error error = error_within(600ms, "host name", [&](Deadline deadline) {
    return refusal(options("redis://no-such-host.invalid:6379"), deadline);
  });
  // Timeout where the name service itself does not answer.
  const ErrorCode code =
      error.code() == ErrorCode::kTimeout ? error.code() : ErrorCode::kUnavailable;
  expect_error(
      error, code,
      {"redis://no-such-host.invalid:6379/0 cannot be reached", "host name", "gave up after"});
}

TEST_F(RedisServerTest, WithoutPasswordOnlyLoopbackIsTrusted) {
  // 127.0.0.2 is as local as 127.0.0.1; a password makes any server trusted.
  auto server = start({.password = {}, .config = {"bind 127.0.0.1 127.0.0.2"}});
  ASSERT_NE(server, nullptr);
  auto store = open(options(fmt::format("redis://127.0.0.2:{}", server->port())));
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(store->trusted());
}

}  // namespace
}  // namespace pushpull::testing
