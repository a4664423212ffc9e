// How ranks learn where rank 0's coordinator is.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/deadline.h"
#include "core/error.h"
#include "core/store.h"

namespace pushpull {

// What rank 0 tells all others, before any connection exists.
struct Advert {
  std::string run;       // random id
  int size = 0;          // of the group
  std::string endpoint;  // of the coordinator: "host:port", numeric
  std::string secret;    // of the job where rank 0 made it up; empty where everybody has it already
  std::string host;      // of rank 0, for messages
  int64_t pid = 0;
  int64_t published = 0;  // seconds since 1970, filled in by publish(), for people

  std::string encode() const;  // one line of JSON
  [[nodiscard]] static Result<Advert> decode(std::string_view text);
};

class Rendezvous {
 public:
  virtual ~Rendezvous() = default;

  // Rank 0: makes the advert known; it replaces the one of an earlier run.
  [[nodiscard]] virtual Result<void> publish(const Advert& advert, Deadline deadline) = 0;
  // Others: waits for an advert whose run is not `known_run` (one that proved stale). The Timeout says
  // that rank 0 did not register, where, and what was seen instead.
  [[nodiscard]] virtual Result<Advert> find(const std::string& known_run, Deadline deadline) = 0;
  // Rank 0, from time to time while it waits: an Aborted, restartable error if another run has
  // replaced this one (names its host and pid). Publishes again what was lost meanwhile.
  [[nodiscard]] virtual Result<void> still_current(Deadline deadline) = 0;
  // Rank 0, after all have connected: removes what it published.
  virtual void withdraw() = 0;

  // Whether a secret may travel in the advert.
  virtual bool trusted() const = 0;
  virtual std::string description() const = 0;
};

// Over a store, under the key "pushpull:{job}:run". What others wrote there is not believed to be
// well-formed: it is passed over by find(), and replaced by still_current().
std::unique_ptr<Rendezvous> make_store_rendezvous(std::unique_ptr<Store> store, std::string job);

}  // namespace pushpull
