// Any words as the command line of `pushpull run`, up to the plan: a plan that can be described, or
// a refusal with a sentence. Words are separated by zero bytes; after the first `--` come those of
// the command.
#include <algorithm>
#include <cstdint>
#include <string>

#include <CLI/CLI.hpp>

#include "launcher/config_flags.h"
#include "launcher/plan.h"

namespace {

std::vector<std::string> split(const uint8_t* data, size_t size) {
  std::vector<std::string> words(1);
  for (size_t i = 0; i < size; ++i) {
    if (data[i] == 0) {
      words.emplace_back();
    } else {
      words.back() += static_cast<char>(data[i]);
    }
  }
  return words;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pushpull::launcher;
  std::vector<std::string> words = split(data, size);
  const auto end = std::find(words.begin(), words.end(), "--");
  const std::vector<std::string> command(end == words.end() ? end : end + 1, words.end());
  words.erase(end, words.end());
  for (const std::string& word : words) {  // no files of the machine it runs on
    if (word.find("-c") != std::string::npos || word.find("config") != std::string::npos) return 0;
  }
  std::reverse(words.begin(), words.end());
  ConfigFlags flags;
  CLI::App app;
  flags.add_to(app);
  app.prefix_command();
  try {
    app.parse(words);
  } catch (const CLI::Error&) {
    return 0;
  }
  const auto config = flags.load([](std::string_view) { return std::nullopt; });
  if (!config || config->integer("workers") > 100) return 0;
  Surroundings around;
  around.environment = {"PATH=/bin", "DMLC_ROLE=worker"};
  around.cores = {0, 1};
  const auto plan = make_plan(*config, "", command, around);
  if (plan) describe(*plan, around.environment);
  return 0;
}
