#include "launcher/cli_text.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace pushpull::launcher {
namespace {

struct OptionText {
  std::string name;         // "-n,--workers"
  std::string long_name;    // "workers"
  std::string short_name;   // "n", or empty
  std::string placeholder;  // "N", empty for a switch
  std::string help;
  std::vector<std::string> choices;
};

struct CommandText {
  std::string name;  // empty: the program itself
  std::string help;
  std::string footer;
  std::vector<OptionText> options;
};

// From "… One of: auto local mpirun. Default: …", as the flags of the configuration write it.
std::vector<std::string> choices_in(const std::string& help) {
  std::vector<std::string> choices;
  const std::string mark = "One of: ";
  const size_t start = help.find(mark);
  if (start == std::string::npos) return choices;
  const std::string list =
      help.substr(start + mark.size(), help.find('.', start) - start - mark.size());
  for (std::string& word : CLI::detail::split(list, ' ')) choices.push_back(std::move(word));
  return choices;
}

OptionText text_of(const CLI::Option& option) {
  OptionText text;
  text.help = option.get_description();
  if (!option.get_lnames().empty()) text.long_name = option.get_lnames().front();
  if (!option.get_snames().empty()) text.short_name = option.get_snames().front();
  text.name = (text.short_name.empty() ? "" : "-" + text.short_name + ",") + "--" + text.long_name;
  if (option.get_type_size() != 0) text.placeholder = option.get_type_name();
  text.choices = choices_in(text.help);
  return text;
}

CommandText text_of(const CLI::App& app) {
  CommandText text{app.get_name(), app.get_description(), app.get_footer(), {}};
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty() && !option->get_lnames().empty()) {
      text.options.push_back(text_of(*option));
    }
  }
  return text;
}

// The program first, then its commands.
std::vector<CommandText> commands_of(const CLI::App& program) {
  std::vector<CommandText> all = {text_of(program)};
  all.front().name.clear();
  for (const CLI::App* app : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (!app->get_group().empty()) all.push_back(text_of(*app));
  }
  return all;
}

std::string names_of(const std::vector<CommandText>& commands) {
  std::string names;
  for (const CommandText& command : commands) {
    if (!command.name.empty()) names += (names.empty() ? "" : " ") + command.name;
  }
  return names;
}

std::string flags_of(const CommandText& command) {
  std::string flags;
  for (const OptionText& option : command.options) {
    if (!option.short_name.empty()) flags += "-" + option.short_name + " ";
    flags += "--" + option.long_name + " ";
  }
  if (!flags.empty()) flags.pop_back();
  return flags;
}

std::string bash(const std::vector<CommandText>& commands) {
  std::string text =
      "# bash completion for pushpull: source <(pushpull completion bash)\n"
      "_pushpull() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i\n"
      "  COMPREPLY=()\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    if [[ ${COMP_WORDS[i]} == -- ]]; then  # the worker's command\n"
      "      COMPREPLY=($(compgen -o default -c -- \"$word\") $(compgen -f -- \"$word\"))\n"
      "      return\n"
      "    fi\n"
      "    [[ -z $command && ${COMP_WORDS[i]} != -* ]] && command=${COMP_WORDS[i]}\n"
      "  done\n"
      "  case $command in\n";
  for (const CommandText& command : commands) {
    text += fmt::format("  {})\n", command.name.empty() ? "''" : command.name);
    if (!command.name.empty()) text += "    case $before in\n";
    for (const OptionText& option : command.options) {
      if (command.name.empty() || option.placeholder.empty()) continue;
      std::string pattern = "--" + option.long_name;
      if (!option.short_name.empty()) pattern += "|-" + option.short_name;
      std::string action;
      if (!option.choices.empty()) {
        action = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$word\"))",
                             fmt::join(option.choices, " "));
      } else if (option.placeholder == "FILE" || option.long_name == "log-dir" ||
                 option.long_name == "hostfile") {
        action = "COMPREPLY=($(compgen -f -- \"$word\"))";
      }
      text += fmt::format("    {}) {}{}return ;;\n", pattern, action, action.empty() ? "" : "; ");
    }
    if (!command.name.empty()) text += "    esac\n";
    const std::string words =
        command.name.empty() ? names_of(commands) + " " + flags_of(command) : flags_of(command);
    text += fmt::format("    COMPREPLY=($(compgen -W '{}' -- \"$word\")) ;;\n", words);
  }
  return text + "  esac\n}\ncomplete -F _pushpull pushpull\n";
}

// 'it''s' for zsh and fish.
std::string quoted(std::string text, const char* quote) {
  std::string out;
  for (const char c : text) out += c == '\'' ? std::string(quote) : std::string(1, c);
  return "'" + out + "'";
}

std::string zsh_safe(const std::string& help) {
  std::string out;
  for (const char c : help) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_option(const OptionText& option) {
  const std::string what = fmt::format("[{}]", zsh_safe(option.help));
  std::string value;
  if (!option.placeholder.empty()) {
    const bool file = option.placeholder == "FILE" || option.long_name == "hostfile";
    value =
        fmt::format(":{}:{}", option.placeholder,
                    !option.choices.empty() ? fmt::format("({})", fmt::join(option.choices, " "))
                    : file                  ? "_files"
                                            : " ");
  }
  std::string text =
      fmt::format(" {}", quoted(fmt::format("--{}{}{}", option.long_name, what, value), "'\\''"));
  if (!option.short_name.empty()) {
    text +=
        fmt::format(" {}", quoted(fmt::format("-{}{}{}", option.short_name, what, value), "'\\''"));
  }
  return text;
}

std::string zsh(const std::vector<CommandText>& commands) {
  std::string text =
      "#compdef pushpull\n"
      "# zsh completion for pushpull: pushpull completion zsh > a folder of $fpath/_pushpull\n"
      "_pushpull() {\n"
      "  local context state line\n"
      "  local -a commands=(\n";
  for (const CommandText& command : commands) {
    if (command.name.empty()) continue;
    text += fmt::format("    {}\n", quoted(command.name + ":" + zsh_safe(command.help), "'\\''"));
  }
  text +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  if (( ${words[(I)--]} && ${words[(I)--]} < CURRENT )); then\n"
      "    _normal\n"
      "    return\n"
      "  fi\n"
      "  case ${words[2]} in\n";
  for (const CommandText& command : commands) {
    if (command.name.empty()) continue;
    text += fmt::format("  {}) shift words; (( CURRENT-- )); _arguments", command.name);
    for (const OptionText& option : command.options) text += zsh_option(option);
    text += " ;;\n";
  }
  return text + "  esac\n}\ncompdef _pushpull pushpull\n";
}

std::string fish(const std::vector<CommandText>& commands) {
  std::string text = "# fish completion for pushpull: pushpull completion fish | source\n";
  for (const CommandText& command : commands) {
    if (!command.name.empty()) {
      text += fmt::format("complete -c pushpull -f -n __fish_use_subcommand -a {} -d {}\n",
                          command.name, quoted(command.help, "\\'"));
    }
    for (const OptionText& option : command.options) {
      const std::string when = command.name.empty()
                                   ? "__fish_use_subcommand"
                                   : fmt::format("'__fish_seen_subcommand_from {}'", command.name);
      text += fmt::format("complete -c pushpull -n {} -l {}", when, option.long_name);
      if (!option.short_name.empty()) text += " -s " + option.short_name;
      if (!option.choices.empty()) {
        text += fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
      } else if (!option.placeholder.empty()) {
        text += " -r";
      }
      text += fmt::format(" -d {}\n", quoted(option.help, "\\'"));
    }
  }
  return text;
}

// Text that troff prints as it is.
std::string troff(const std::string& text) {
  std::string out;
  bool line_start = true;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      if (line_start && (c == '.' || c == '\'')) out += "\\&";
      out += c;
    }
    line_start = c == '\n';
  }
  return out;
}

}  // namespace

Result<std::string> completion_script(const CLI::App& program, const std::string& shell) {
  const auto commands = commands_of(program);
  if (shell == "bash") return bash(commands);
  if (shell == "zsh") return zsh(commands);
  if (shell == "fish") return fish(commands);
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("no completion for '{}'; known are bash, zsh, fish", shell));
}

std::string man_page(const CLI::App& program, const std::string& version) {
  const auto commands = commands_of(program);
  std::string text = fmt::format(
      ".TH PUSHPULL 1 \"\" \"pushpull {}\" \"User Commands\"\n"
      ".SH NAME\npushpull \\- {}\n"
      ".SH SYNOPSIS\n.B pushpull\n.I command\n[\\fIoptions\\fR] [\\-\\- \\fIprogram\\fR "
      "[\\fIarguments\\fR]]\n"
      ".SH DESCRIPTION\n{}\n",
      troff(version), "data\\-parallel training over MPI, Gloo, or Gloo with Redis",
      troff(program.get_description()));
  for (const CommandText& command : commands) {
    text += command.name.empty()
                ? ".SH OPTIONS\n"
                : fmt::format(".SH PUSHPULL {}\n{}\n", CLI::detail::to_lower(command.name),
                              troff(command.help));
    for (const OptionText& option : command.options) {
      std::string names =
          option.short_name.empty() ? "" : fmt::format("\\-{}, ", option.short_name);
      names += "\\-\\-" + troff(option.long_name);
      text += fmt::format(
          ".TP\n\\fB{}\\fR{}\n{}\n", names,
          option.placeholder.empty() ? "" : " \\fI" + troff(option.placeholder) + "\\fR",
          troff(option.help));
    }
    if (!command.footer.empty()) text += fmt::format(".PP\n.nf\n{}\n.fi\n", troff(command.footer));
  }
  return text +
         ".SH ENVIRONMENT\nEvery setting has a variable; \\fBpushpull config\\fR lists them with "
         "their values.\n.TP\n\\fBNO_COLOR\\fR\nno colours, on a terminal either.\n";
}

}  // namespace pushpull::launcher
