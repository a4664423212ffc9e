// Finds backend and store modules by name and opens them at run time.
//
// Looked for in the directory of libpushpull.so, then in each directory of PUSHPULL_BACKEND_PATH
// (colon-separated). Objects may be added by hand too (tests). Not a singleton: the program makes one.
// Modules stay loaded until the process ends. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "core/store.h"

namespace pushpull {

// Backends that core takes by itself where they fit, under the chosen one.
bool is_internal_backend(std::string_view name);

class Registry {
 public:
  // `search_path`: further directories, colon-separated.
  explicit Registry(std::string search_path = {});

  void add(std::unique_ptr<Backend> backend);
  void add(std::unique_ptr<StoreFactory> factory);

  // The errors of an unknown name list the known ones; of a module whose library is missing, the
  // library and the Debian package that has it.
  [[nodiscard]] Result<Backend*> backend(std::string_view name);
  [[nodiscard]] Result<StoreFactory*> store(std::string_view name);

  // Names whose module file exists or that were added, sorted; of backends those that one can choose.
  std::vector<std::string> backend_names() const;
  std::vector<std::string> store_names() const;

 private:
  template <class Interface, class Module>
  Result<Interface*> find(std::map<std::string, std::unique_ptr<Interface>, std::less<>>& loaded,
                          std::string_view kind, std::string_view name);
  std::vector<std::string> names(std::string_view kind) const;

  std::vector<std::string> directories_;
  mutable std::mutex mutex_;
  std::map<std::string, std::unique_ptr<Backend>, std::less<>> backends_;
  std::map<std::string, std::unique_ptr<StoreFactory>, std::less<>> stores_;
};

}  // namespace pushpull
