#include "backends/rendezvous/redis/redis_error.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace pushpull::redis {

namespace {

enum class Retry { kNo, kYes };

// A kind of error reply: how its text starts (without a leading "ERR "), and what it means.
// {server}, {user}, {command}, {inner}, {key}, {pattern} are filled in.
struct Rule {
  std::string_view start;
  Retry retry;
  ErrorCode code;
  std::string_view meaning;
};

constexpr auto kUnavailable = ErrorCode::kUnavailable;
constexpr auto kInvalid = ErrorCode::kInvalidArgument;

constexpr std::string_view kBadLogin =
    "{server} refuses the password of user '{user}'; check PUSHPULL_REDIS_USER and "
    "PUSHPULL_REDIS_PASSWORD or PUSHPULL_REDIS_PASSWORD_FILE";
constexpr std::string_view kNoPasswordSet =
    "{server} has no password set, but one was given; set one there, or unset "
    "PUSHPULL_REDIS_PASSWORD and PUSHPULL_REDIS_PASSWORD_FILE and take it out of the URL";
constexpr std::string_view kNoDatabase =
    "{server} has no database of that number; correct the number at the end of the URL";
constexpr std::string_view kCluster =
    "{server} is a node of a Redis Cluster, which cannot be used for rendezvous; give the URL of "
    "a Redis that stands alone (a small one is enough)";
constexpr std::string_view kNoCommand =
    "{server} does not let user '{user}' run {command}{inner} on the key {key}; grant it there "
    "with ACL SETUSER {user} ~{pattern} +get +set +del +eval +incrby +pexpire +select";
constexpr std::string_view kNotCounter =
    "the key {key} at {server} does not hold a counter that can be added to; remove it or choose "
    "another job name";

constexpr std::array kRules{
    // May become good.
    Rule{"LOADING", Retry::kYes, kUnavailable, "{server} is still loading its data"},
    Rule{"MASTERDOWN", Retry::kYes, kUnavailable, "{server} is a replica that lost its master"},
    Rule{"TRYAGAIN", Retry::kYes, kUnavailable, "{server} moves its data and asks to try again"},
    Rule{"BUSY ", Retry::kYes, kUnavailable, "{server} is busy with another client's script"},
    Rule{"NOREPLICAS", Retry::kYes, kUnavailable, "{server} has too few replicas to take writes"},
    Rule{"max number of clients", Retry::kYes, kUnavailable,
         "{server} has as many clients as it takes (maxclients)"},
    // Who we are and what we may.
    Rule{"WRONGPASS", Retry::kNo, kInvalid, kBadLogin},
    Rule{"invalid password", Retry::kNo, kInvalid, kBadLogin},
    Rule{"NOAUTH", Retry::kNo, kInvalid,
         "{server} asks for a password; set PUSHPULL_REDIS_PASSWORD or "
         "PUSHPULL_REDIS_PASSWORD_FILE"},
    Rule{"AUTH <password> called without any password", Retry::kNo, kInvalid, kNoPasswordSet},
    Rule{"Client sent AUTH, but no password is set", Retry::kNo, kInvalid, kNoPasswordSet},
    Rule{"wrong number of arguments for 'auth'", Retry::kNo, kInvalid,
         "{server} is older than Redis 6 and knows no users; unset PUSHPULL_REDIS_USER and take "
         "the user out of the URL"},
    Rule{"DENIED", Retry::kNo, kUnavailable,
         "{server} is in protected mode and takes only local clients; set a password there"},
    Rule{"NOPERM", Retry::kNo, kInvalid, kNoCommand},
    Rule{"The user executing the script can't", Retry::kNo, kInvalid, kNoCommand},
    Rule{"unknown command", Retry::kNo, kUnavailable,
         "{server} does not know the command {command}; use Redis 4 or newer with its usual "
         "command names"},
    // What it is.
    Rule{"READONLY", Retry::kNo, kUnavailable,
         "{server} is a read-only replica; give the URL of its master"},
    Rule{"MOVED", Retry::kNo, kUnavailable, kCluster},
    Rule{"ASK", Retry::kNo, kUnavailable, kCluster},
    Rule{"CLUSTERDOWN", Retry::kNo, kUnavailable, kCluster},
    Rule{"CROSSSLOT", Retry::kNo, kUnavailable, kCluster},
    Rule{"SELECT is not allowed in cluster mode", Retry::kNo, kUnavailable, kCluster},
    Rule{"DB index is out of range", Retry::kNo, kInvalid, kNoDatabase},
    Rule{"invalid DB index", Retry::kNo, kInvalid, kNoDatabase},
    Rule{"OOM", Retry::kNo, kUnavailable,
         "{server} has reached its memory limit and takes no writes; raise its maxmemory or remove "
         "keys"},
    Rule{"MISCONF", Retry::kNo, kUnavailable,
         "{server} cannot save its data to disk and takes no writes (MISCONF); repair that, or set "
         "stop-writes-on-bgsave-error no there"},
    // What is stored.
    Rule{"WRONGTYPE", Retry::kNo, kInvalid,
         "the key {key} at {server} holds something that pushpull did not write; remove it or "
         "choose another job name"},
    Rule{"value is not an integer", Retry::kNo, kInvalid, kNotCounter},
    Rule{"increment or decrement would overflow", Retry::kNo, kInvalid, kNotCounter},
};

// Brings the forms in which servers since Redis 4 report the same thing to one: without "ERR ", and
// without what old ones put in front of an error that came up inside a script.
std::string_view plain(std::string_view text) {
  constexpr std::string_view kScript = "@user_script";
  if (text.starts_with("ERR Error running script")) {
    if (const size_t at = text.rfind(kScript); at != std::string_view::npos) {
      text.remove_prefix(at + kScript.size());
      const auto first =
          std::find_if(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
      text.remove_prefix(static_cast<size_t>(first - text.begin()));
    }
  }
  if (text.starts_with("ERR ")) text.remove_prefix(4);
  return text;
}

std::string printable(std::string_view text, size_t most) {
  std::string out;
  for (const char c : text.substr(0, most)) out += c >= ' ' && c <= '~' ? c : '.';
  return out;
}

// Servers repeat the arguments of a command that they do not know, and nothing that answers AUTH
// shall be shown.
std::string harmless(std::string_view text, const Question& question) {
  if (question.command == "AUTH") return printable(text.substr(0, text.find(' ')), 40);
  return printable(text.substr(0, text.find(", with args beginning")), 160);
}

std::string fill(std::string_view meaning, const Question& q) {
  return fmt::format(
      fmt::runtime(meaning), fmt::arg("server", q.server),
      fmt::arg("user", q.user.empty() ? "default" : q.user), fmt::arg("command", q.command),
      fmt::arg("inner", q.inner.empty() ? std::string() : fmt::format(" (with {})", q.inner)),
      fmt::arg("key", printable(q.key, 200)),
      fmt::arg("pattern", printable(key_pattern(q.key), 200)));
}

}  // namespace

std::string key_pattern(std::string_view key) {
  const size_t colon = key.find(':');
  return colon == std::string_view::npos ? std::string(key)
                                         : fmt::format("{}:*", key.substr(0, colon));
}

Fault reply_fault(std::string_view text, const Question& question) {
  const std::string_view bare = plain(text);
  // The permission for a database is not about a key.
  if (question.command == "SELECT" && bare.starts_with("NOPERM")) {
    return {Error(kInvalid, fill("{server} does not let user '{user}' select a database; grant "
                                 "+select to it there, or use database 0",
                                 question)),
            false, false};
  }
  for (const Rule& rule : kRules) {
    if (!bare.starts_with(rule.start)) continue;
    return {Error(rule.code, fill(rule.meaning, question)), rule.retry == Retry::kYes, false};
  }
  return {Error(kUnavailable, fmt::format("{} answered {} with the error \"{}\"", question.server,
                                          question.command, harmless(text, question))),
          false, false};
}

Fault odd_reply_fault(const Question& question) {
  return {Error(kUnavailable,
                fmt::format("{} gave {} an answer that Redis does not give; is it another kind of "
                            "server?",
                            question.server, question.command))};
}

Fault unresolved_fault(const Question& question, const Error& why) {
  const auto code = why.code() == ErrorCode::kTimeout ? why.code() : kUnavailable;
  return {Error(code, fmt::format("{} cannot be reached: {}", question.server, why.message())),
          true, true, "correct the name in the URL, or add it to DNS"};
}

Fault unreachable_fault(const Question& question, std::string_view reason) {
  return {Error(kUnavailable, fmt::format("{} cannot be reached ({})", question.server, reason)),
          true, true, "start it, or correct host and port in the URL"};
}

Fault broken_fault(const Question& question, std::string_view reason) {
  return {Error(kUnavailable, fmt::format("{} {} instead of answering {}", question.server, reason,
                                          question.command)),
          true, true, "look into its log"};
}

Fault silent_fault(const Question& question) {
  const std::string what = question.command.empty()
                               ? std::string("the connection was not accepted")
                               : fmt::format("{} was not answered", question.command);
  return {Error(ErrorCode::kTimeout,
                fmt::format("{} does not answer ({} in time)", question.server, what)),
          true, true, "is it overloaded, stopped, or behind a firewall?"};
}

Fault tls_fault(const Question& question) {
  return {Error(kUnavailable,
                fmt::format("{} speaks TLS at this port, which hiredis 0.14 does not; give the "
                            "port at which it speaks without",
                            question.server))};
}

Fault not_redis_fault(const Question& question, std::string_view head) {
  if (!head.empty() && (head.front() == '\x15' || head.front() == '\x16')) {
    return tls_fault(question);
  }
  // A server that echoes would have us print the password or a value.
  const bool shown = question.command != "AUTH" && !head.starts_with('*');
  return {Error(kUnavailable,
                fmt::format("{} is not a Redis (it answered {} with {}); correct host and port in "
                            "the URL",
                            question.server, question.command,
                            shown ? fmt::format("\"{}\"", printable(head, 24)) : "garbage"))};
}

}  // namespace pushpull::redis
