#include "core/registry.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/module_error.h"

namespace pushpull {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "libpushpull_";
constexpr std::string_view kSuffix = ".so";

// Any object of this library: dladdr tells by its address where the library was loaded from.
const char kAnchor = 0;

// The directory of libpushpull.so, wherever it was installed; empty where it cannot be told.
std::string own_directory() {
  Dl_info info{};
  if (dladdr(&kAnchor, &info) == 0 || info.dli_fname == nullptr) return {};
  std::error_code error;
  const fs::path file = fs::canonical(info.dli_fname, error);
  return error ? std::string() : file.parent_path().string();
}

std::vector<std::string> split_directories(std::string_view search_path) {
  std::vector<std::string> directories;
  while (!search_path.empty()) {
    const size_t colon = std::min(search_path.find(':'), search_path.size());
    if (colon > 0) directories.emplace_back(search_path.substr(0, colon));
    search_path.remove_prefix(std::min(colon + 1, search_path.size()));
  }
  return directories;
}

// Names become part of a file name: no separators, nothing that leaves the directory.
bool is_plain(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  });
}

std::string module_file(std::string_view kind, std::string_view name) {
  return fmt::format("{}{}_{}{}", kPrefix, kind, name, kSuffix);
}

std::string find_file(const std::vector<std::string>& directories, const std::string& file) {
  for (const std::string& directory : directories) {
    std::error_code error;
    const fs::path path = fs::path(directory) / file;
    if (fs::is_regular_file(path, error)) return path.string();
  }
  return {};
}

template <class Module>
Result<const Module*> open_module(std::string_view what, std::string_view kind,
                                  const std::string& path) {
  // Never closed: objects of the module live until the process ends. Local: backends may link
  // libraries with clashing names.
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* text = dlerror();
    return fail(module_load_error(what, path, text == nullptr ? "" : text));
  }
  const std::string entry = fmt::format("pushpull_{}_v1", kind);
  const auto function = reinterpret_cast<const Module* (*)()>(dlsym(handle, entry.c_str()));
  const Module* module = function == nullptr ? nullptr : function();
  if (module == nullptr || module->abi == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} cannot be used: {} is not a pushpull module (it does not offer "
                            "{}); remove it or install the right one",
                            what, path, entry));
  }
  if (std::string_view(module->abi) != kModuleAbi) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} cannot be used: {} was built for another pushpull (its interface "
                            "is {}, this library's {}); install module and library of one version",
                            what, path, module->abi, kModuleAbi));
  }
  return module;
}

}  // namespace

Registry::Registry(std::string search_path) {
  if (std::string own = own_directory(); !own.empty()) directories_.push_back(std::move(own));
  for (std::string& directory : split_directories(search_path)) {
    directories_.push_back(std::move(directory));
  }
}

void Registry::add(std::unique_ptr<Backend> backend) {
  const std::scoped_lock lock(mutex_);
  std::string name(backend->name());
  backends_[std::move(name)] = std::move(backend);
}

void Registry::add(std::unique_ptr<StoreFactory> factory) {
  const std::scoped_lock lock(mutex_);
  std::string name(factory->name());
  stores_[std::move(name)] = std::move(factory);
}

template <class Interface, class Module>
Result<Interface*> Registry::find(
    std::map<std::string, std::unique_ptr<Interface>, std::less<>>& loaded, std::string_view kind,
    std::string_view name) {
  const std::scoped_lock lock(mutex_);
  if (const auto it = loaded.find(name); it != loaded.end()) return it->second.get();

  const std::string file = module_file(kind, name);
  const std::string path = is_plain(name) ? find_file(directories_, file) : std::string();
  if (path.empty()) {
    const auto known = names(kind);
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("there is no {} named '{}' (no {} in {}); known are: {}{}", kind, name,
                            file, fmt::join(directories_, ", "),
                            known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                            kind == "store" ? "; PUSHPULL_RENDEZVOUS begins with such a name" : ""));
  }
  const std::string what = fmt::format("{} '{}'", kind, name);
  auto module = open_module<Module>(what, kind, path);
  if (!module) return fail(module.error());
  std::unique_ptr<Interface> made = (*module)->create();
  if (!made) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("{} cannot be used: its module {} did not start", what, path));
  }
  return (loaded[std::string(name)] = std::move(made)).get();
}

Result<Backend*> Registry::backend(std::string_view name) {
  return find<Backend, BackendModule>(backends_, "backend", name);
}

Result<StoreFactory*> Registry::store(std::string_view name) {
  return find<StoreFactory, StoreModule>(stores_, "store", name);
}

// Called with mutex_ held.
std::vector<std::string> Registry::names(std::string_view kind) const {
  std::set<std::string> found;
  if (kind == "backend") {
    for (const auto& entry : backends_) found.insert(entry.first);
  } else {
    for (const auto& entry : stores_) found.insert(entry.first);
  }
  const std::string prefix = fmt::format("{}{}_", kPrefix, kind);
  for (const std::string& directory : directories_) {
    std::error_code error;
    for (fs::directory_iterator it(directory, error), end; !error && it != end;
         it.increment(error)) {
      const std::string file = it->path().filename().string();
      if (file.size() <= prefix.size() + kSuffix.size() || !file.starts_with(prefix) ||
          !file.ends_with(kSuffix)) {
        continue;
      }
      const std::string name =
          file.substr(prefix.size(), file.size() - prefix.size() - kSuffix.size());
      if (is_plain(name)) found.insert(name);
    }
  }
  return {found.begin(), found.end()};
}

bool is_internal_backend(std::string_view name) { return name == "shm" || name == "hierarchical"; }

std::vector<std::string> Registry::backend_names() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::string> found = names("backend");
  std::erase_if(found, is_internal_backend);
  return found;
}

std::vector<std::string> Registry::store_names() const {
  const std::scoped_lock lock(mutex_);
  return names("store");
}

}  // namespace pushpull
