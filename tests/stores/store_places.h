// Where the stores of a test live, and the list of all stores that the suite runs over.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/store.h"

namespace pushpull::testing {

struct StorePlace {
  StoreOptions options;
  bool trusted = false;         // what the store has to say about it
  std::shared_ptr<void> alive;  // a server or a directory that the place needs
};

struct StoreKind {
  std::string name;    // of the tests: letters, digits, '_'
  std::string module;  // as the Registry knows it
  Result<StorePlace> (*make)();
};
void PrintTo(const StoreKind& kind, std::ostream* out);  // for GoogleTest

// Every store. A new one is one line here (and its place, where none of these fits).
const std::vector<StoreKind>& all_stores();

// "tcp://127.0.0.1:<free port>"
Result<StorePlace> tcp_loopback();
// "file://<temporary directory>"
Result<StorePlace> file_directory();
Result<StorePlace> memory();
// A redis-server without password, with one, and with a user who may do only what docs/redis.md asks.
Result<StorePlace> redis_plain();
Result<StorePlace> redis_password();
Result<StorePlace> redis_user();

// The line of redis.conf that docs/redis.md shows, for user "pushpull" with this password.
std::string redis_acl_line(const std::string& password);

}  // namespace pushpull::testing
