#include "tests/stores/store_places.h"

#include <fstream>
#include <ostream>

#include <fmt/format.h>

#include "tests/support/process.h"
#include "tests/support/redis_server.h"

namespace pushpull::testing {

const std::vector<StoreKind>& all_stores() {
  static const std::vector<StoreKind> kStores{
      {"memory", "memory", memory},
      {"tcp", "tcp", tcp_loopback},
      {"file", "file", file_directory},
      {"redis", "redis", redis_plain},
      {"redis_with_password", "redis", redis_password},
      {"redis_with_user", "redis", redis_user},
  };
  return kStores;
}

void PrintTo(const StoreKind& kind, std::ostream* out) { *out << kind.name; }

Result<StorePlace> memory() {
  StorePlace place;
  place.options.url = "memory://here";
  place.trusted = true;
  return place;
}

Result<StorePlace> tcp_loopback() {
  StorePlace place;
  place.options.url = fmt::format("tcp://127.0.0.1:{}", free_port());
  place.options.secret = "a secret of the job";
  place.trusted = true;  // loopback
  return place;
}

Result<StorePlace> file_directory() {
  StorePlace place;
  const auto directory = std::make_shared<TemporaryDirectory>();
  place.options.url = "file://" + directory->path();
  place.trusted = true;
  place.alive = directory;
  return place;
}

namespace {

Result<StorePlace> redis(RedisServerOptions options) {
  StorePlace place;
  place.options.password = options.password;
  place.trusted = true;  // loopback
  auto server = RedisServer::start(std::move(options));
  if (!server) return fail(server.error());
  place.options.url = (*server)->url();
  place.alive = std::move(*server);
  return place;
}

}  // namespace

Result<StorePlace> redis_plain() { return redis({}); }

Result<StorePlace> redis_password() { return redis({.password = "p@ss:word/%", .config = {}}); }

Result<StorePlace> redis_user() {
  // The default user is off: what works, works by what the line grants.
  auto place = redis({.password = {}, .config = {redis_acl_line("lock"), "user default off"}});
  if (place) {
    place->options.user = "pushpull";
    place->options.password = "lock";
    place->options.url += "/3";
  }
  return place;
}

std::string redis_acl_line(const std::string& password) {
  constexpr std::string_view kStart = "user pushpull on >PASSWORD";
  std::ifstream page(PUSHPULL_SOURCE_DIR "/docs/redis.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with(kStart)) continue;
    return fmt::format("user pushpull on >{}{}", password, line.substr(kStart.size()));
  }
  return "docs/redis.md shows no line that starts with: " + std::string(kStart);
}

}  // namespace pushpull::testing
