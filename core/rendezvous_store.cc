#include "core/rendezvous_store.h"

#include <fmt/format.h>

namespace pushpull {
namespace {

constexpr char kDefaultTcp[] = "tcp://127.0.0.1:29500";
constexpr char kDefaultRedis[] = "redis://127.0.0.1:6379/0";

std::string scheme_of(const std::string& url) {
  const size_t at = url.find("://");
  return at == std::string::npos ? "" : url.substr(0, at);
}

}  // namespace

std::string module_of(const std::string& backend) {
  return backend == "gloo-redis" ? "gloo" : backend;
}

Result<StoreOptions> rendezvous_options(const Settings& settings) {
  const bool redis = settings.backend == "gloo-redis";
  StoreOptions options;
  options.url = settings.rendezvous;
  if (options.url.empty()) options.url = redis ? kDefaultRedis : kDefaultTcp;
  if (redis && store_kind(options.url) != "redis")
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("backend gloo-redis needs a redis:// rendezvous, but it is {}://…; set "
                            "PUSHPULL_RENDEZVOUS to redis://host:port/db or use backend gloo",
                            scheme_of(options.url)));
  options.job = settings.job;
  options.secret = settings.secret;
  options.user = settings.redis_user;
  options.password = settings.redis_password;
  options.interface = settings.interface;
  return options;
}

Result<std::unique_ptr<Store>> open_store(const StoreOptions& options, Registry& registry,
                                          Deadline deadline) {
  auto factory = registry.store(store_kind(options.url));
  if (!factory) return fail(factory.error());
  return (*factory)->open(options, deadline);
}

std::string store_kind(const std::string& url) {
  const std::string scheme = scheme_of(url);
  return scheme == "rediss" ? "redis" : scheme;
}

Endpoint rendezvous_host(const std::string& url) {
  const size_t start = url.find("://");
  if (start == std::string::npos || store_kind(url) == "file") return {};
  std::string rest = url.substr(start + 3);
  rest = rest.substr(0, rest.find('/'));
  if (const size_t at = rest.rfind('@'); at != std::string::npos) rest = rest.substr(at + 1);
  auto endpoint = parse_endpoint(rest, 1);
  return endpoint ? *endpoint : Endpoint{};
}

}  // namespace pushpull
