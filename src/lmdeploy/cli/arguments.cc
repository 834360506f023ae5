#include "lmdeploy/cli/arguments.h"

#include <algorithm>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string with_hyphens(std::string name) {
  const auto end = std::find(name.begin(), name.end(), '.');
  std::replace(name.begin(), end, '_', '-');
  return name;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "--" : ", --") + name;
  return text;
}

std::string completed(const std::string& name, const std::vector<std::string>& flags) {
  std::vector<std::string> matches;
  for (const std::string& flag : flags) {
    if (flag == name) return flag;
    if (flag.compare(0, name.size(), name) == 0) matches.push_back(flag);
  }
  if (matches.size() > 1)
    throw UsageError(cat("ambiguous argument --", name, ": it could be ", joined(matches)));
  return matches.empty() ? name : matches.front();
}

/// "--flag" or "--flag=value".
std::string normalize_flag(const std::string& argument, const CommandNames& command) {
  const size_t value = std::min(argument.find('='), argument.size());
  const std::string name = with_hyphens(argument.substr(2, value - 2));
  return "--" + completed(name, command.flags) + argument.substr(value);
}

bool is_long_flag(const std::string& argument) {
  return argument.size() > 2 && argument.compare(0, 2, "--") == 0;
}

}  // namespace

std::vector<std::string> normalize_arguments(const std::vector<std::string>& arguments,
                                             const CommandNames& program) {
  std::vector<std::string> normalized;
  const CommandNames* command = &program;
  bool only_values = false;
  for (const std::string& argument : arguments) {
    const auto sub_command = command->commands.find(argument);
    only_values = only_values || argument == "--";
    if (only_values || !is_long_flag(argument)) {
      normalized.push_back(argument);
    } else {
      normalized.push_back(normalize_flag(argument, *command));
    }
    if (sub_command != command->commands.end()) command = &sub_command->second;
  }
  return normalized;
}

}  // namespace lmdeploy
