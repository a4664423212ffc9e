#include "core/environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>

#include <fmt/format.h>

#include "core/text.h"

namespace pushpull {
namespace {

struct Starter {
  std::string_view name;
  std::string_view rank;
  std::array<std::string_view, 3> sizes;  // the first that is set counts
  std::string_view local_rank;
};

// In the order in which they are asked. Inside a Slurm step both Slurm's variables and those of its
// PMI plug-in are there, and agree.
constexpr std::array<Starter, 6> kStarters = {{
    {"Open MPI", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI", "PMI_RANK", {"PMI_SIZE"}, "MPI_LOCALRANKID"},
    {"PMIx", "PMIX_RANK", {"PMIX_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, "SLURM_LOCALID"},
    {"Slurm",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     "SLURM_LOCALID"},
    {"a Kubernetes Indexed Job", "JOB_COMPLETION_INDEX", {"PUSHPULL_SIZE"}, ""},
    {"torchrun", "RANK", {"WORLD_SIZE"}, "LOCAL_RANK"},
}};

std::optional<std::string> lookup(const Config::Environment& environment, std::string_view name) {
  if (name.empty()) return std::nullopt;
  auto value = environment(name);
  if (value && value->empty()) return std::nullopt;
  return value;
}

Result<std::optional<int>> number(const Config::Environment& environment, std::string_view name) {
  const auto text = lookup(environment, name);
  if (!text) return std::nullopt;
  const auto value = parse_integer(*text);
  constexpr int64_t kMostRanks = 1 << 20;
  if (!value || *value > kMostRanks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("environment variable {}={} is not a number of processes", name,
                            in_quotes(*text)));
  }
  return static_cast<int>(*value);
}

// Rank (-> info.rank and source), size and local rank from one starter; false if it did not start
// us.
Result<bool> ask(const Starter& starter, const Config::Environment& environment,
                 StarterInfo& info) {
  std::optional<int> size;
  if (!lookup(environment, starter.rank)) return false;
  for (const std::string_view name : starter.sizes) {
    auto value = number(environment, name);
    if (!value) return fail(value.error());
    if (!size) size = *value;
  }
  // RANK alone is a name that anybody may use for anything.
  if (starter.rank == "RANK" && !size) return false;
  auto rank = number(environment, starter.rank);
  if (!rank) return fail(rank.error());
  auto local_rank = number(environment, starter.local_rank);
  if (!local_rank) return fail(local_rank.error());
  info = {*rank, size, *local_rank, fmt::format("{} ({})", starter.name, starter.rank)};
  return true;
}

Result<void> check_range(const StarterInfo& info) {
  if (info.size && *info.size < 1) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} says that the job has {} processes", info.source, *info.size));
  }
  if (info.rank && info.size && *info.rank >= *info.size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} from {} is out of range: the job has {} workers, so ranks go "
                            "from 0 to {}",
                            *info.rank, info.source, *info.size, *info.size - 1));
  }
  return {};
}

}  // namespace

std::optional<std::string> environment_variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::vector<std::string> whole_environment() {
  std::vector<std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    all.emplace_back(*entry);
  }
  return all;
}

Result<StarterInfo> detect_starter(const Config::Environment& environment) {
  StarterInfo info;
  for (const Starter& starter : kStarters) {
    auto found = ask(starter, environment, info);
    if (!found) return fail(found.error());
    if (*found) break;
  }
  const auto rank_text = lookup(environment, "PUSHPULL_RANK");
  const bool any_rank = rank_text == "auto";
  auto rank =
      any_rank ? Result<std::optional<int>>(std::nullopt) : number(environment, "PUSHPULL_RANK");
  auto local_rank = number(environment, "PUSHPULL_LOCAL_RANK");
  const auto size_text = lookup(environment, "PUSHPULL_SIZE");
  auto size = size_text == "auto" ? Result<std::optional<int>>(std::nullopt)
                                  : number(environment, "PUSHPULL_SIZE");
  if (!rank) return fail(rank.error());
  if (!size) return fail(size.error());
  if (!local_rank) return fail(local_rank.error());
  if (rank_text) {
    info.rank = *rank;
    info.local_rank.reset();  // the starter's belongs to the starter's rank
    info.source = "environment PUSHPULL_RANK";
  }
  if (*size) info.size = *size;
  if (*local_rank) info.local_rank = *local_rank;
  if (info.source.empty() && *size) info.source = "environment PUSHPULL_SIZE";
  if (auto ok = check_range(info); !ok) return fail(ok.error());
  return info;
}

const std::vector<std::string_view>& starter_variables() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    const auto add = [&](std::string_view name) {
      if (!name.empty() && name.substr(0, 9) != "PUSHPULL_") all.push_back(name);
    };
    for (const Starter& starter : kStarters) {
      add(starter.rank);
      for (const std::string_view size : starter.sizes) add(size);
      add(starter.local_rank);
    }
    return all;
  }();
  return names;
}

Result<void> check_not_alone(const Config::Environment& environment, const Identity& identity) {
  if (identity.size > 1) return {};
  std::string settings;
  const auto look_at = [&](std::string_view name) {
    if (name.empty() || settings.find(fmt::format("{}=", name)) != std::string::npos) return;
    const auto text = lookup(environment, name);
    const auto value = text ? parse_integer(*text) : Result<int64_t>(0);
    if (value && *value > identity.size) {
      settings += fmt::format("{}{}={}", settings.empty() ? "" : ", ", name, *value);
    }
  };
  look_at("PUSHPULL_SIZE");
  for (const Starter& starter : kStarters) {
    for (const std::string_view size : starter.sizes) look_at(size);
  }
  if (settings.empty()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("this process would train alone (rank {} of {}) although {} in its "
                  "environment {} of more workers; start it with a starter that the backend "
                  "understands, or set PUSHPULL_RANK and PUSHPULL_SIZE, or unset what does "
                  "not hold",
                  identity.rank, identity.size, settings,
                  settings.find(',') == std::string::npos ? "speaks" : "speak"));
}

}  // namespace pushpull
