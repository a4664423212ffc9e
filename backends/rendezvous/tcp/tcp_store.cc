#include "backends/rendezvous/tcp/tcp_store.h"

#include <algorithm>

#include <fmt/format.h>

#include "backends/rendezvous/tcp/client.h"
#include "backends/rendezvous/tcp/server.h"
#include "core/net/dial_attempt.h"
#include "core/net/resolve.h"

namespace pushpull::tcp_store {
namespace {

constexpr std::string_view kScheme = "tcp://";
constexpr uint16_t kDefaultPort = 29500;

Result<Endpoint> parse_url(const std::string& url) {
  std::string_view rest = url;
  if (!rest.starts_with(kScheme)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a tcp:// address", url));
  }
  rest.remove_prefix(kScheme.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  if (rest.find('@') != std::string_view::npos) {
    // Not shown: in front of the @ there may be a password.
    return fail(ErrorCode::kInvalidArgument,
                "a tcp:// rendezvous takes no user or password; set PUSHPULL_SECRET or "
                "PUSHPULL_SECRET_FILE instead");
  }
  return parse_endpoint(rest, kDefaultPort);
}

bool names_loopback(const Endpoint& endpoint) {
  return endpoint.host == "localhost" || is_loopback(endpoint.host);
}

// Whatever the host's resolver says: without a secret nothing may leave loopback.
Endpoint on_loopback(const Endpoint& endpoint) {
  return endpoint.host == "localhost" ? Endpoint{"127.0.0.1", endpoint.port} : endpoint;
}

// The address to listen on: the one that the others connect to, if it is ours and they see the
// same.
std::string address_to_serve(const Endpoint& endpoint, Deadline deadline) {
  if (names_loopback(endpoint)) return on_loopback(endpoint).host;
  const auto interfaces = list_interfaces();
  const auto ours = [&](const std::string& address) {
    return interfaces && std::any_of(interfaces->begin(), interfaces->end(),
                                     [&](const Interface& i) { return i.address == address; });
  };
  // Our own name may resolve late, or here only to 127.0.1.1: then every address serves as well.
  NameLookup lookup(endpoint);
  const auto found = lookup.find(std::min(deadline, deadline_in(std::chrono::seconds(2))));
  if (found) {
    for (const SocketAddress& address : *found) {
      if (ours(address.host()) && !is_loopback(address.host())) return address.host();
    }
  }
  const bool has_v6 =
      interfaces && std::any_of(interfaces->begin(), interfaces->end(),
                                [](const Interface& i) { return i.address == "::1"; });
  return has_v6 ? "::" : "0.0.0.0";
}

std::string timeout_sentence(Operation operation, std::string_view key, bool known,
                             const std::string& where, Duration waited) {
  if (operation != Operation::kWait) {
    return fmt::format("{} did not answer within {} (key '{}')", where, seconds_text(waited), key);
  }
  return fmt::format("key '{}' did not {} at {} within {}", key, known ? "change" : "appear", where,
                     seconds_text(waited));
}

Result<std::unique_ptr<Store>> host(const StoreOptions& options, const Endpoint& endpoint,
                                    bool loopback, Deadline deadline) {
  ServerOptions serving;
  serving.job = options.job;
  serving.secret = options.secret;
  serving.address = address_to_serve(endpoint, deadline);
  serving.port = endpoint.port;
  serving.time_to_live = options.time_to_live;
  auto server = Server::start(serving, deadline);
  if (!server) return fail(server.error());
  const Endpoint shown{endpoint.host, (*server)->endpoint().port};
  return std::make_unique<TcpStore>(std::move(*server), std::string(kScheme) + shown.to_string(),
                                    loopback);
}

}  // namespace

Result<std::unique_ptr<Store>> TcpStoreFactory::open(const StoreOptions& options,
                                                     Deadline deadline) {
  auto endpoint = parse_url(options.url);
  if (!endpoint) return fail(endpoint.error());
  const bool loopback = names_loopback(*endpoint);
  const std::string where = std::string(kScheme) + endpoint->to_string();
  if (options.secret.empty() && !loopback) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a rendezvous at {} can be reached from other hosts and so needs a secret: "
                    "set PUSHPULL_SECRET or PUSHPULL_SECRET_FILE to the same on every rank",
                    where));
  }
  if (options.host_it) return host(options, *endpoint, loopback, deadline);
  if (endpoint->port == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} names no port; only rank 0 can take any", where));
  }
  auto client = std::make_unique<Client>(loopback ? on_loopback(*endpoint) : *endpoint,
                                         options.secret, options.job);
  return std::make_unique<TcpStore>(std::move(client), where, loopback);
}

Result<Reply> TcpStore::call(Operation operation, std::string_view key, std::string_view value,
                             int64_t delta, Deadline deadline) {
  if (auto ok = check_key(key); !ok) return fail(ok.error());
  if (auto ok = check_value(key, value); !ok) return fail(ok.error());
  Request request;
  request.operation = operation;
  request.number = ++requests_;
  request.key = key;
  request.value = value;
  request.delta = delta;
  const auto began = Clock::now();
  auto reply = caller_->call(request, deadline);
  if (!reply) {
    // A refusal by the server's judge is a sentence of its own.
    const ErrorCode code = reply.error().code();
    const bool plain = code == ErrorCode::kTimeout || code == ErrorCode::kPeerLost;
    if (!plain) return fail(reply.error());
    return fail(Error(ErrorCode::kTimeout, reply.error().message()).with_context(description_));
  }
  if (!*reply) {
    Error error(ErrorCode::kTimeout,
                timeout_sentence(operation, key, !value.empty(), description_, deadline - began));
    return fail(error.at_key(std::string(key)));
  }
  if ((*reply)->error) return fail(*(*reply)->error);
  return std::move(**reply);
}

Result<void> TcpStore::set(std::string_view key, std::string_view value, Deadline deadline) {
  auto reply = call(Operation::kSet, key, value, 0, deadline);
  if (!reply) return fail(reply.error());
  return {};
}

Result<std::string> TcpStore::set_if_absent(std::string_view key, std::string_view value,
                                            Deadline deadline) {
  auto reply = call(Operation::kSetIfAbsent, key, value, 0, deadline);
  if (!reply) return fail(reply.error());
  return std::move(reply->value).value_or(std::string());
}

Result<std::optional<std::string>> TcpStore::get(std::string_view key, Deadline deadline) {
  auto reply = call(Operation::kGet, key, {}, 0, deadline);
  if (!reply) return fail(reply.error());
  return std::move(reply->value);
}

Result<std::string> TcpStore::wait(std::string_view key, std::string_view known,
                                   Deadline deadline) {
  auto reply = call(Operation::kWait, key, known, 0, deadline);
  if (!reply) return fail(reply.error());
  return std::move(reply->value).value_or(std::string());
}

Result<int64_t> TcpStore::add(std::string_view key, int64_t delta, Deadline deadline) {
  auto reply = call(Operation::kAdd, key, {}, delta, deadline);
  if (!reply) return fail(reply.error());
  return reply->sum;
}

Result<void> TcpStore::remove_if(std::string_view key, std::string_view value, Deadline deadline) {
  auto reply = call(Operation::kRemoveIf, key, value, 0, deadline);
  if (!reply) return fail(reply.error());
  return {};
}

}  // namespace pushpull::tcp_store
