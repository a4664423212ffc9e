#include "backends/rendezvous/redis/redis_store.h"

#include <algorithm>
#include <charconv>
#include <chrono>

#include <fmt/format.h>

namespace pushpull::redis {

namespace {

using namespace std::chrono_literals;

constexpr size_t kMaxValue = 64u << 10;
constexpr Duration kFirstPoll = 5ms;
constexpr Duration kLongestPoll = 250ms;
constexpr Duration kTokenMargin = 10s;
constexpr Duration kClean = 500ms;

// Each script works on Redis 4 and newer, and is one atomic step.

constexpr std::string_view kSetIfAbsent =
    "local found = redis.call('GET', KEYS[1]) "
    "if found then return found end "
    "redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) "
    "return ARGV[1]";

constexpr std::string_view kRemoveIf =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end "
    "return 0";

// KEYS[2] remembers the outcome of this one call: a repetition, after its reply was lost, finds it
// and does not add again. The sum is read by GET because Lua's numbers end at 2^53.
constexpr std::string_view kAdd =
    "local done = redis.call('GET', KEYS[2]) "
    "if done then return done end "
    "redis.call('INCRBY', KEYS[1], ARGV[1]) "
    "redis.call('PEXPIRE', KEYS[1], ARGV[2]) "
    "local sum = redis.call('GET', KEYS[1]) "
    "redis.call('SET', KEYS[2], sum, 'PX', ARGV[3]) "
    "return sum";

std::string milliseconds(Duration duration) {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(duration).count();
  return std::to_string(std::max<int64_t>(count, 1));
}

}  // namespace

RedisStore::RedisStore(RedisClient client, Duration time_to_live)
    : client_(std::move(client)),
      time_to_live_(time_to_live),
      milliseconds_to_live_(milliseconds(time_to_live)) {}

Result<void> RedisStore::check_size(std::string_view key, std::string_view value) const {
  if (value.size() <= kMaxValue) return {};
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the value of {} bytes for the key {} at {} is too long; at most {} are "
                          "allowed",
                          value.size(), key, description(), kMaxValue));
}

Error RedisStore::missing(std::string_view key, bool exists, Duration waited) const {
  const double seconds = std::chrono::duration<double>(waited).count();
  return Error(
      ErrorCode::kTimeout,
      fmt::format("the key {} at {} {} within {:.1f} s; is the rank that writes it running, "
                  "with the same job name and the same Redis?",
                  key, description(), exists ? "did not change" : "did not appear", seconds));
}

Result<std::string> RedisStore::text_of(const Command& command, Deadline deadline) {
  auto reply = client_.call(command, deadline);
  if (!reply) return fail(std::move(reply.error()));
  if (reply->kind == Reply::Kind::kString) return std::move(reply->text);
  return fail(odd_reply_fault(client_.question(command)).error);
}

Result<void> RedisStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  if (auto fits = check_size(key, value); !fits) return fits;
  const Command command{{"SET", key, value, "PX", milliseconds_to_live_}, key};
  auto reply = client_.call(command, deadline);
  if (!reply) return fail(std::move(reply.error()));
  if (reply->kind == Reply::Kind::kStatus) return {};
  return fail(odd_reply_fault(client_.question(command)).error);
}

Result<std::string> RedisStore::set_if_absent(std::string_view key, std::string_view value,
                                              Deadline deadline) {
  if (auto fits = check_size(key, value); !fits) return fail(std::move(fits.error()));
  return text_of({{"EVAL", kSetIfAbsent, "1", key, value, milliseconds_to_live_}, key, "GET, SET"},
                 deadline);
}

Result<std::optional<std::string>> RedisStore::get(std::string_view key, Deadline deadline) {
  const Command command{{"GET", key}, key};
  auto reply = client_.call(command, deadline);
  if (!reply) return fail(std::move(reply.error()));
  if (reply->kind == Reply::Kind::kNil) return std::optional<std::string>();
  if (reply->kind == Reply::Kind::kString) return std::optional(std::move(reply->text));
  return fail(odd_reply_fault(client_.question(command)).error);
}

Result<std::string> RedisStore::wait(std::string_view key, std::string_view known,
                                     Deadline deadline) {
  const auto start = Clock::now();
  Backoff poll(kFirstPoll, kLongestPoll);
  bool asked = false;
  bool exists = false;
  for (;;) {
    const auto before = Clock::now();
    auto value = get(key, deadline);
    if (!value) {
      // The last question before the deadline had hardly any time; the answers before it count.
      const bool cut_short =
          asked && value.error().code() == ErrorCode::kTimeout && deadline - before < kLongestPoll;
      return fail(cut_short ? missing(key, exists, Clock::now() - start)
                            : std::move(value.error()));
    }
    asked = true;
    exists = value->has_value();
    if (exists && (known.empty() || **value != known)) return std::move(**value);
    if (!poll.sleep(deadline, client_.random())) {
      return fail(missing(key, exists, Clock::now() - start));
    }
  }
}

Result<int64_t> RedisStore::add(std::string_view key, int64_t delta, Deadline deadline) {
  std::random_device random;
  const std::string token =
      fmt::format("{}:add:{:08x}{:08x}{:08x}{:08x}", key, random(), random(), random(), random());
  const std::string amount = std::to_string(delta);
  // It is needed for as long as this call may repeat itself.
  const bool endless = deadline == never();
  const Duration needed = endless ? time_to_live_ : deadline - Clock::now() + kTokenMargin;
  const std::string token_life = milliseconds(std::min(needed, time_to_live_));
  const auto sum =
      text_of({{"EVAL", kAdd, "2", key, token, amount, milliseconds_to_live_, token_life},
               key,
               "GET, SET, INCRBY, PEXPIRE"},
              deadline);
  if (!sum) return fail(sum.error());
  client_.try_once({{"DEL", token}, key}, std::min(deadline, deadline_in(kClean)));
  int64_t value = 0;
  const char* end = sum->data() + sum->size();
  if (std::from_chars(sum->data(), end, value).ptr == end) return value;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("the key {} at {} does not hold a counter; remove it or choose another "
                          "job name",
                          key, description()));
}

Result<void> RedisStore::remove_if(std::string_view key, std::string_view value,
                                   Deadline deadline) {
  auto reply = client_.call({{"EVAL", kRemoveIf, "1", key, value}, key, "GET, DEL"}, deadline);
  if (!reply) return fail(std::move(reply.error()));
  return {};
}

Result<std::unique_ptr<Store>> RedisStoreFactory::open(const StoreOptions& options,
                                                       Deadline deadline) {
  auto target = parse_redis_url(options);
  if (!target) return fail(std::move(target.error()));
  RedisClient client(std::move(*target));
  if (auto connected = client.connect(deadline); !connected) {
    return fail(std::move(connected.error()));
  }
  return std::make_unique<RedisStore>(std::move(client), options.time_to_live);
}

}  // namespace pushpull::redis
