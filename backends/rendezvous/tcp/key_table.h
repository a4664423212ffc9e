// The content of the TCP store: keys, and who waits for which. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "backends/rendezvous/tcp/protocol.h"
#include "core/deadline.h"

namespace pushpull::tcp_store {

class KeyTable {
 public:
  using Done = std::function<void(const Reply&)>;
  // Names a request that waits.
  using Ticket = uint64_t;

  explicit KeyTable(Duration time_to_live) : time_to_live_(time_to_live) {}

  // Runs `client`'s request. `done` is called before this returns (then the ticket is 0), or, for a
  // kWait whose key has no new value yet, during the request that brings it.
  Ticket run(const std::string& client, const Request& request, Done done);
  // Forgets a request that waits; not an error where it is done.
  void cancel(Ticket ticket) { waiting_.erase(ticket); }

 private:
  struct Entry {
    std::string value;
    Deadline expires;
  };
  struct Waiter {
    std::string key;
    std::string known;
    Done done;
  };
  struct LastAdd {
    uint64_t number = 0;
    Reply reply;
  };

  Reply answer(const std::string& client, const Request& request);
  Reply add(const std::string& client, const Request& request);
  const std::string* find(const std::string& key);
  Reply store(const std::string& key, std::string value);
  void wake(const std::string& key);
  void drop_expired();

  const Duration time_to_live_;
  std::map<std::string, Entry> entries_;
  std::map<Ticket, Waiter> waiting_;
  std::map<std::string, LastAdd>
      last_adds_;  // by client: its connection may break before the answer
  Ticket last_ticket_ = 0;
};

}  // namespace pushpull::tcp_store
