// Shape lists: finding and reading them.
#include <dlfcn.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "core/c_api.h"
#include "core/config.h"
#include "core/text.h"
#include "launcher/bench/options.h"

namespace pushpull::launcher {
namespace {

namespace fs = std::filesystem;

tl::unexpected<Error> invalid(std::string message) {
  return fail(ErrorCode::kInvalidArgument, std::move(message));
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".txt") names.push_back(entry.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

// Beside the folder of libpushpull.so, in a build tree as in an installed package.
std::string installed_models() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&pushpull_version), &info) == 0) return {};
  std::error_code error;
  const fs::path library = fs::canonical(info.dli_fname, error);
  return error ? std::string() : (library.parent_path().parent_path() / "models").string();
}

bool is_model_file(const std::string& model) {
  std::error_code ignored;
  return model.find('/') != std::string::npos || fs::exists(model, ignored);
}

Result<std::vector<size_t>> read_model(const std::string& model, const std::string& folder) {
  const bool is_path = is_model_file(model);
  const std::string path = is_path ? model : folder + "/" + model + ".txt";
  std::ifstream file(path);
  if (!file) {
    if (is_path) {
      return invalid(
          fmt::format("flag --model: cannot read {}: {}", in_quotes(model), errno_text(errno)));
    }
    const auto known = names_in(folder);
    const std::string near = nearest_name(model, known);
    return invalid(
        fmt::format("flag --model: unknown model {}; known are {}{}; or give a file with one "
                    "number of elements per line",
                    in_quotes(model), fmt::join(known, ", "),
                    near.empty() ? "" : "; did you mean '" + near + "'?"));
  }
  std::vector<size_t> counts;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty() || line.front() == '#') continue;
    const auto count = parse_integer(line.substr(0, line.find_first_of(" \t\r")));
    if (!count || *count < 1 || *count > (int64_t{1} << 40)) {
      return invalid(fmt::format("{}:{}: {} does not begin with a number of elements", path, number,
                                 in_quotes(line)));
    }
    counts.push_back(static_cast<size_t>(*count));
  }
  if (counts.empty())
    return invalid(fmt::format("flag --model: {} lists no tensors", in_quotes(path)));
  return counts;
}

}  // namespace pushpull::launcher
