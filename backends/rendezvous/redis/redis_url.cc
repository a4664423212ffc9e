#include "backends/rendezvous/redis/redis_url.h"

#include <charconv>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "core/net/endpoint.h"

namespace pushpull::redis {

namespace {

constexpr uint16_t kDefaultPort = 6379;
constexpr std::string_view kForm = "redis://[user[:password]@]host[:port][/database]";

// The URL without what stands before '@'.
std::string without_login(std::string_view url) {
  const size_t scheme = url.find("://");
  const size_t at = url.rfind('@');
  if (scheme == std::string_view::npos || at == std::string_view::npos || at < scheme) {
    return std::string(at == std::string_view::npos ? url : url.substr(at + 1));
  }
  return fmt::format("{}://{}", url.substr(0, scheme), url.substr(at + 1));
}

tl::unexpected<Error> bad_url(std::string_view url, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("the rendezvous URL '{}' {}; its form is {}",
                                                       without_login(url), what, kForm));
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = hex_digit(text[i + 1]);
    const auto low = hex_digit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

std::optional<int> number(std::string_view text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value < least || value > most) return std::nullopt;
  return value;
}

// Fills user and password from "user:password"; false for a broken percent escape.
bool take_login(std::string_view login, RedisTarget& target) {
  const size_t colon = login.find(':');
  const auto user = percent_decoded(login.substr(0, colon));
  const auto password = colon == std::string_view::npos ? std::optional<std::string>("")
                                                        : percent_decoded(login.substr(colon + 1));
  if (!user || !password) return false;
  target.user = *user;
  target.password = *password;
  return true;
}

}  // namespace

std::string RedisTarget::description() const {
  return fmt::format("redis://{}/{}", Endpoint{host, port}.to_string(), database);
}

Result<RedisTarget> parse_redis_url(const StoreOptions& options) {
  std::string_view rest = options.url;
  const std::string_view url = rest;
  if (rest.starts_with("rediss://")) {
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("the rendezvous URL '{}' asks for TLS, which hiredis 0.14 does not have; "
                    "use redis:// over a network you trust, or a tunnel that adds TLS",
                    without_login(url)));
  }
  if (!rest.starts_with("redis://")) return bad_url(url, "does not start with redis://");
  rest.remove_prefix(std::string_view("redis://").size());

  RedisTarget target;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    if (!take_login(rest.substr(0, at), target)) {
      return bad_url(url, "has a broken percent escape before the '@'");
    }
    rest.remove_prefix(at + 1);
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view database = rest.substr(std::min(slash + 1, rest.size()));
  if (!database.empty()) {
    const auto value = number(database, 0, 1'000'000);
    if (!value) return bad_url(url, "does not end in the number of a database");
    target.database = *value;
  }
  const auto endpoint = parse_endpoint(rest.substr(0, slash), kDefaultPort);
  if (!endpoint) return bad_url(url, "cannot be used (" + endpoint.error().message() + ")");
  if (endpoint->port == 0) return bad_url(url, "has no port between 1 and 65535 after the host");
  target.host = endpoint->host;
  target.port = endpoint->port;
  if (!options.user.empty()) target.user = options.user;
  if (!options.password.empty()) target.password = options.password;
  return target;
}

}  // namespace pushpull::redis
