// Plans as people read them.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "core/text.h"
#include "launcher/environment_block.h"
#include "launcher/plan.h"

namespace pushpull::launcher {
namespace {

bool is_secret(std::string_view name) {
  if (name == kTokenVariable) return true;
  const auto& schema = config_schema();
  return std::any_of(schema.begin(), schema.end(), [&](const ConfigKey& key) {
    return key.type == ConfigType::kSecret && key.variable == name;
  });
}

std::string joined(const std::vector<std::string>& argv) {
  std::string line;
  for (const std::string& word : argv) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

// "NAME=value", or how a shell gets it from what it has.
std::string assignment(const std::string& entry, const std::vector<std::string>& base) {
  const std::string_view name = EnvironmentBlock::name_of(entry);
  const std::string_view value = std::string_view(entry).substr(name.size() + 1);
  const std::string before = EnvironmentBlock(base).get(name).value_or("");
  if (is_secret(name)) return fmt::format("{}=***", name);
  if (name == "PATH" && !before.empty() && value.substr(value.find(':') + 1) == before) {
    return fmt::format("PATH={}:\"$PATH\"", shell_quoted(value.substr(0, value.find(':'))));
  }
  return fmt::format("{}={}", name, shell_quoted(without_password(value)));
}

// "env -u GONE NAME=value command": what has to be changed for this process.
std::string describe(const Process& process, const std::vector<std::string>& base, bool remote) {
  const std::set<std::string_view> before(base.begin(), base.end());
  std::string line = "env";
  for (const std::string& entry : base) {
    const std::string_view name = EnvironmentBlock::name_of(entry);
    const bool kept = std::any_of(process.environment.begin(), process.environment.end(),
                                  [&](auto& e) { return EnvironmentBlock::name_of(e) == name; });
    if (!kept && !remote) line += " -u " + shell_quoted(name);
  }
  for (const std::string& entry : process.environment) {
    if (before.count(entry) == 0) {
      line += " " + assignment(entry, base);
    } else if (remote) {  // no values that nobody asked for
      const std::string_view name = EnvironmentBlock::name_of(entry);
      line += fmt::format(" {0}=\"${0}\"", name);
    }
  }
  line += " " + joined(process.argv);
  if (process.cores.empty()) return line;
  return fmt::format("taskset -c {} {}", fmt::join(process.cores, ","), line);
}

}  // namespace

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view plain =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+=:,./@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string_view::npos) {
    return std::string(text);
  }
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? "'\"'\"'" : std::string(1, c);
  return out + "'";
}

std::string describe(const Plan& plan, const std::vector<std::string>& base) {
  std::string text;
  if (!plan.script.empty()) return plan.script;
  for (const std::string& note : plan.notes) text += fmt::format("# {}\n", note);
  if (plan.redis) text += fmt::format("# redis\n{}\n", joined(plan.redis->argv));
  if (plan.starter) {
    text += fmt::format("# starts a shim for each worker, which gets what follows from here\n{}\n",
                        describe(*plan.starter, base, false));
  }
  if (plan.meet_at_rank_0) {
    text +=
        "# each worker also gets PUSHPULL_RENDEZVOUS=tcp://…, an address and a free port of rank "
        "0's host\n";
  }
  if (plan.starter && plan.share_cores) {
    text += "# each worker is bound to its share of the cores of its host\n";
  }
  for (const Process& worker : plan.workers) {
    text += fmt::format("# {}\n{}\n", worker.name, describe(worker, base, plan.remote));
  }
  return text;
}

std::vector<int> share_of_cores(const std::vector<int>& cores, int index, int count) {
  if (cores.empty() || count < 1) return {};
  const auto n = static_cast<size_t>(count);
  const auto i = static_cast<size_t>(index);
  if (n >= cores.size()) return {cores[i % cores.size()]};
  const auto first = cores.begin() + static_cast<ptrdiff_t>(i * cores.size() / n);
  const auto last = cores.begin() + static_cast<ptrdiff_t>((i + 1) * cores.size() / n);
  return {first, last};
}

std::string log_file(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{}.log", folder, rank);
}

}  // namespace pushpull::launcher
