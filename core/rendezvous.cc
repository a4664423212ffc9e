#include "core/rendezvous.h"

#include <chrono>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/net/dial_attempt.h"
#include "core/net/endpoint.h"

namespace pushpull {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxAdvertBytes = 16u << 10;
constexpr Duration kWithdrawLimit = std::chrono::seconds(2);

std::optional<std::string> text_of(const Json& json, const char* name, size_t longest) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_string()) return std::nullopt;
  std::string text = found->get<std::string>();
  if (text.size() > longest) return std::nullopt;
  return text;
}

// What is not a whole number of this range is nullopt.
std::optional<int64_t> number_of(const Json& json, const char* name, int64_t least) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  const auto number = found->get<int64_t>();
  return number < least ? std::nullopt : std::optional(number);
}

class StoreRendezvous final : public Rendezvous {
 public:
  StoreRendezvous(std::unique_ptr<Store> store, std::string job)
      : store_(std::move(store)), job_(std::move(job)), key_("pushpull:" + job_ + ":run") {}

  Result<void> publish(const Advert& advert, Deadline deadline) override;
  Result<Advert> find(const std::string& known_run, Deadline deadline) override;
  Result<void> still_current(Deadline deadline) override;
  void withdraw() override;
  bool trusted() const override { return store_->trusted(); }
  std::string description() const override { return store_->description(); }

 private:
  Result<void> compare(const std::string& found, Deadline deadline);

  const std::unique_ptr<Store> store_;
  const std::string job_;
  const std::string key_;
  std::string run_;        // what this rank published
  std::string published_;  // the same, encoded; empty where nothing is
};

Result<void> StoreRendezvous::publish(const Advert& advert, Deadline deadline) {
  Advert dated = advert;
  dated.published = std::chrono::duration_cast<std::chrono::seconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count();
  std::string text = dated.encode();
  if (auto set = store_->set(key_, text, deadline); !set) return set;
  run_ = advert.run;
  published_ = std::move(text);
  return {};
}

Result<Advert> StoreRendezvous::find(const std::string& known_run, Deadline deadline) {
  const auto began = Clock::now();
  std::string known;
  std::string seen;
  while (true) {
    auto text = store_->wait(key_, known, deadline);
    if (!text && text.error().code() != ErrorCode::kTimeout) return fail(text.error());
    if (!text) {
      if (seen.empty()) seen = text.error().message();
      Error error(ErrorCode::kTimeout,
                  fmt::format("rank 0 of job '{}' did not register at {} within {} ({}); is rank 0 running, with "
                              "the same PUSHPULL_JOB and PUSHPULL_RENDEZVOUS?",
                              job_, store_->description(), seconds_text(deadline - began), seen));
      return fail(error.at_rank(0));
    }
    auto advert = Advert::decode(*text);
    if (advert && advert->run != known_run) return advert;
    seen = advert ? fmt::format("only the earlier run of host {}, pid {}, is there", advert->host,
                                advert->pid)
                  : advert.error().message();
    known = std::move(*text);
  }
}

Result<void> StoreRendezvous::still_current(Deadline deadline) {
  if (published_.empty()) {
    return fail(ErrorCode::kInvalidArgument, "this rank has not published anything");
  }
  // Absent: evicted, flushed, or a server that came back empty. Whoever writes first, wins.
  auto found = store_->set_if_absent(key_, published_, deadline);
  if (!found) return fail(found.error());
  return compare(*found, deadline);
}

Result<void> StoreRendezvous::compare(const std::string& found, Deadline deadline) {
  if (found == published_) return {};
  const auto other = Advert::decode(found);
  if (!other) return store_->set(key_, published_, deadline);
  if (other->run == run_) return {};
  const Advert ours = Advert::decode(published_).value_or(Advert());
  Error error(ErrorCode::kAborted,
              fmt::format("another run of job '{}' has replaced this one: its rank 0 is on host {} "
                          "(pid {}), this one's on host {} (pid {})",
                          job_, other->host, other->pid, ours.host, ours.pid));
  return fail(error.at_rank(0, other->host).make_restartable());
}

void StoreRendezvous::withdraw() {
  if (published_.empty()) return;
  // What stays behind where this fails expires by itself.
  (void)store_->remove_if(key_, published_, deadline_in(kWithdrawLimit));
  published_.clear();
}

}  // namespace

std::string Advert::encode() const {
  const Json json = {{"run", run},   {"size", size}, {"endpoint", endpoint},  {"secret", secret},
                     {"host", host}, {"pid", pid},   {"published", published}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Advert> Advert::decode(std::string_view text) {
  const auto malformed = [] {
    return fail(ErrorCode::kInvalidArgument, "what is registered there is not from pushpull");
  };
  if (text.size() > kMaxAdvertBytes) return malformed();
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return malformed();
  const auto run = text_of(json, "run", 64);
  const auto size = number_of(json, "size", 1);
  const auto endpoint = text_of(json, "endpoint", 300);
  const auto secret = text_of(json, "secret", 4096);
  const auto host = text_of(json, "host", 256);
  const auto pid = number_of(json, "pid", 0);
  if (!run || run->empty() || !size || *size > std::numeric_limits<int>::max() || !endpoint ||
      !secret || !host || !pid || !parse_endpoint(*endpoint)) {
    return malformed();
  }
  Advert advert;
  advert.run = *run;
  advert.size = static_cast<int>(*size);
  advert.endpoint = *endpoint;
  advert.secret = *secret;
  advert.host = *host;
  advert.pid = *pid;
  advert.published = number_of(json, "published", 0).value_or(0);
  return advert;
}

std::unique_ptr<Rendezvous> make_store_rendezvous(std::unique_ptr<Store> store, std::string job) {
  return std::make_unique<StoreRendezvous>(std::move(store), std::move(job));
}

}  // namespace pushpull
