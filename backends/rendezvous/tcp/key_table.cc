#include "backends/rendezvous/tcp/key_table.h"

#include <utility>
#include <vector>

namespace pushpull::tcp_store {
namespace {

// Far above what any job writes; only a bound.
constexpr size_t kMaxKeys = 65'536;
constexpr size_t kMaxClients = 65'536;

Reply failed(const Error& error) {
  Reply reply;
  reply.error = error;
  return reply;
}

Reply found(std::string value) {
  Reply reply;
  reply.value = std::move(value);
  return reply;
}

}  // namespace

KeyTable::Ticket KeyTable::run(const std::string& client, const Request& request, Done done) {
  if (request.operation != Operation::kWait) {
    done(answer(client, request));
    return 0;
  }
  const std::string* value = find(request.key);
  // An empty `known` stands for none.
  if (value != nullptr && (request.value.empty() || *value != request.value)) {
    done(found(*value));
    return 0;
  }
  waiting_.emplace(++last_ticket_, Waiter{request.key, request.value, std::move(done)});
  return last_ticket_;
}

Reply KeyTable::answer(const std::string& client, const Request& request) {
  const std::string* value = find(request.key);
  switch (request.operation) {
    case Operation::kSet: {
      Reply reply = store(request.key, request.value);
      reply.value.reset();
      return reply;
    }
    case Operation::kSetIfAbsent:
      return value != nullptr ? found(*value) : store(request.key, request.value);
    case Operation::kAdd:
      return add(client, request);
    case Operation::kRemoveIf:
      if (value != nullptr && *value == request.value) entries_.erase(request.key);
      return {};
    case Operation::kGet:
    case Operation::kWait:
      break;
  }
  return value != nullptr ? found(*value) : Reply();
}

Reply KeyTable::add(const std::string& client, const Request& request) {
  LastAdd& last = last_adds_[client];
  if (last.number == request.number) return last.reply;
  const std::string* value = find(request.key);
  const auto sum = add_to_counter(
      request.key, value != nullptr ? std::optional(*value) : std::nullopt, request.delta);
  Reply reply = sum ? store(request.key, std::to_string(*sum)) : failed(sum.error());
  if (sum) reply.sum = *sum;
  last = {request.number, reply};
  // Whoever asks again does so soon, so the rest may go.
  if (last_adds_.size() > kMaxClients) last_adds_ = {{client, last}};
  return reply;
}

const std::string* KeyTable::find(const std::string& key) {
  const auto entry = entries_.find(key);
  if (entry == entries_.end()) return nullptr;
  if (entry->second.expires > Clock::now()) return &entry->second.value;
  entries_.erase(entry);
  return nullptr;
}

Reply KeyTable::store(const std::string& key, std::string value) {
  if (entries_.size() >= kMaxKeys) drop_expired();
  if (entries_.size() >= kMaxKeys && !entries_.contains(key)) {
    return failed(Error(ErrorCode::kUnavailable, "the store of the job is full"));
  }
  entries_[key] = {value, deadline_in(time_to_live_)};
  wake(key);
  return found(std::move(value));
}

void KeyTable::wake(const std::string& key) {
  const std::string value = entries_[key].value;
  std::vector<Done> ready;
  std::erase_if(waiting_, [&](auto& waiter) {
    const std::string& known = waiter.second.known;
    if (waiter.second.key != key || (!known.empty() && known == value)) return false;
    ready.push_back(std::move(waiter.second.done));
    return true;
  });
  for (const Done& done : ready) done(found(value));
}

void KeyTable::drop_expired() {
  const auto now = Clock::now();
  std::erase_if(entries_, [&](const auto& entry) { return entry.second.expires <= now; });
}

}  // namespace pushpull::tcp_store
