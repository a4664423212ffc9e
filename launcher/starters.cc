#include "launcher/starters.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "launcher/environment_block.h"
#include "launcher/name_list.h"

namespace pushpull::launcher {
namespace {

void append(std::vector<std::string>& to, const std::vector<std::string>& words) {
  to.insert(to.end(), words.begin(), words.end());
}

// Names that srun's --export takes, which separates them by commas.
bool is_plain_name(std::string_view name) {
  constexpr std::string_view known =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
  return !name.empty() && name.find_first_not_of(known) == std::string_view::npos;
}

std::string export_list(const StarterRequest& request) {
  if (request.forward == "auto") return "ALL";
  const NameList names("HOME,USER,LOGNAME,PATH," + request.forward);
  std::string list(kTokenVariable);
  for (const std::string& entry : request.environment) {
    const std::string_view name = EnvironmentBlock::name_of(entry);
    if (names.has(name) && is_plain_name(name)) list += fmt::format(",{}", name);
  }
  return list;
}

// Flags that make the same configuration again, but for what the script decides itself.
std::vector<std::string> flags_again(const Config& config) {
  std::vector<std::string> words;
  for (const ConfigKey& key : config_schema()) {
    const ConfigValue& value = config.value(key.path);
    const bool decided = key.path == "launch.engine" || key.path == "launch.starter_args";
    if (!value.origin.starts_with("flag ") || decided) continue;
    const std::string flag(key.flag.substr(key.flag.rfind(',') + 1));
    if (flag.empty()) {
      append(words, {"--set", fmt::format("{}={}", key.path, value.text)});
    } else {
      append(words, {flag, value.text});
    }
  }
  return words;
}

}  // namespace

// Open MPI's own binding would put all threads of a rank on one core, and its own forwarding of
// environment and output breaks names, values and lines: the shim gets and gives them directly.
Process mpirun(const StarterRequest& request) {
  Process process;
  process.name = "mpirun";
  process.argv = {"mpirun"};
  if (request.is_root) process.argv.emplace_back("--allow-run-as-root");
  append(process.argv, {"--oversubscribe", "--bind-to", "none"});
  if (!request.hosts.empty()) {
    append(process.argv, {"--host", host_list(request.hosts), "--map-by", "slot", "-x",
                          std::string(kTokenVariable)});
  }
  append(process.argv, request.further);
  append(process.argv, {"-n", std::to_string(request.workers)});
  append(process.argv, request.shim);
  EnvironmentBlock environment(request.environment);
  environment.set(kTokenVariable, request.token);
  process.environment = environment.entries();
  return process;
}

Process srun(const StarterRequest& request) {
  Process process;
  process.name = "srun";
  process.argv = {"srun"};
  // A worker's end is the launcher's affair, and so is what its cores are.
  append(process.argv,
         {fmt::format("--ntasks={}", request.workers), "--distribution=block", "--cpu-bind=none",
          "--kill-on-bad-exit=0", "--wait=0", "--input=none",
          request.mpi ? "--mpi=pmix" : "--mpi=none", "--export=" + export_list(request)});
  append(process.argv, request.further);
  append(process.argv, request.shim);
  EnvironmentBlock environment(request.environment);
  environment.set(kTokenVariable, request.token);
  process.environment = environment.entries();
  return process;
}

std::string sbatch_script(const Config& config, const ScriptRequest& request,
                          const std::vector<std::string>& further,
                          const std::vector<std::string>& command) {
  std::string script = "#!/bin/sh\n";
  const auto option = [&](const std::string& text) { script += "#SBATCH " + text + "\n"; };
  option("--job-name=" +
         shell_quoted(config.is_default("job") ? "pushpull" : config.text("job")));
  option(fmt::format("--ntasks={}", request.workers));
  for (size_t i = 0; i < further.size(); ++i) {
    // A value that stands alone belongs to the option in front of it.
    const bool has_value = i + 1 < further.size() && !further[i + 1].starts_with('-') &&
                           further[i].find('=') == std::string::npos;
    option(shell_quoted(further[i]) + (has_value ? " " + shell_quoted(further[i + 1]) : ""));
    if (has_value) ++i;
  }
  script += "# Made by pushpull run --engine slurm; submit it by sbatch.\n";
  std::vector<std::string> words = {request.folder + "/pushpull", "run", "--engine", "slurm"};
  if (!request.config_file.empty()) {
    const bool absolute = request.config_file.starts_with('/');
    append(words, {"-c", absolute ? request.config_file
                                  : request.working_folder + "/" + request.config_file});
  }
  append(words, flags_again(config));
  words.emplace_back("--");
  append(words, command);
  script += "exec";
  for (const std::string& word : words) script += " " + shell_quoted(word);
  return script + "\n";
}

Result<std::vector<std::string>> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;
  char quote = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      word = word.value_or("");
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word = word.value_or("") + text[++i];
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (word) words.push_back(*word);
      word.reset();
    } else {
      word = word.value_or("") + c;
    }
  }
  if (quote != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a quote ({}) is not closed in the starter's arguments", quote));
  }
  if (word) words.push_back(*word);
  return words;
}

}  // namespace pushpull::launcher
