#include "core/module_error.h"

#include <array>
#include <cctype>
#include <utility>

#include <fmt/format.h>

namespace pushpull {

namespace {

// Libraries whose package is not named after them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPackages{{
    {"libmpi.so.40", "libopenmpi3"},
    {"libmpi_cxx.so.40", "libopenmpi3"},
    {"libopen-rte.so.40", "libopenmpi3"},
    {"libopen-pal.so.40", "libopenmpi3"},
    {"libcrypto.so.3", "libssl3"},
}};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::string debian_package(std::string_view library) {
  for (const auto& [name, package] : kPackages) {
    if (name == library) return std::string(package);
  }
  const size_t so = library.find(".so.");
  if (so == std::string_view::npos || so == 0) return {};
  std::string package(library.substr(0, so));
  const std::string_view version = library.substr(so + 4);
  if (version.empty() || !is_digit(version.front())) return {};
  if (is_digit(package.back())) package += '-';
  package += version;
  for (char& c : package) {
    c = c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return package;
}

std::string missing_library(std::string_view dlerror_text) {
  constexpr std::string_view kMissing = ": cannot open shared object file: No such file";
  const size_t end = dlerror_text.find(kMissing);
  return end == std::string_view::npos ? std::string() : std::string(dlerror_text.substr(0, end));
}

Error module_load_error(std::string_view what, std::string_view path,
                        std::string_view dlerror_text) {
  const std::string library = missing_library(dlerror_text);
  if (library.empty() || library == path) {
    return Error(ErrorCode::kUnavailable,
                 fmt::format("{} cannot be used: its module {} cannot be loaded ({}); install a "
                             "module built for this pushpull",
                             what, path, dlerror_text));
  }
  const std::string package = debian_package(library);
  const std::string remedy =
      package.empty()
          ? "install it or add its directory to LD_LIBRARY_PATH"
          : fmt::format("install it (Debian package {}: apt install {})", package, package);
  return Error(ErrorCode::kUnavailable,
               fmt::format("{} cannot be used: its module {} needs the library {}, which is not "
                           "on this host; {}",
                           what, path, library, remedy));
}

}  // namespace pushpull
