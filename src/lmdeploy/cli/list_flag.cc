#include "lmdeploy/cli/list_flag.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

/// "a, b" is two values; "" is one, and "a," has a second one that is empty.
void append_values(std::string_view text, std::vector<std::string>& values) {
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    values.emplace_back(trimmed(text.substr(0, comma)));
    if (comma == text.size()) return;
    text.remove_prefix(comma + 1);
  }
}

void check_values(const ListFlag& flag, const std::vector<std::string>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].empty())
      throw CLI::ValidationError(flag.name, cat("a ", flag.item,
                                                " is empty; leave the flag out, or set the "
                                                "variable that the value comes from"));
    const bool again = std::count(values.begin(), values.begin() + static_cast<ptrdiff_t>(i), values[i]) > 0;
    if (flag.distinct && again)
      throw CLI::ValidationError(flag.name, cat("the ", flag.item, " ", values[i], " is given twice"));
  }
}

bool looks_like_model(const std::string& value) {
  std::error_code ignored;
  return value.find('/') != std::string::npos || value.ends_with(".gguf") ||
         std::filesystem::exists(value, ignored);
}

}  // namespace

void add_list_flag(CLI::App& command, const ListFlag& flag, std::vector<std::string>& values) {
  const auto take = [flag, &values](const std::vector<std::string>& given) {
    values.clear();
    for (const std::string& text : given) append_values(text, values);
    check_values(flag, values);
  };
  command.add_option_function<std::vector<std::string>>(flag.name, take, flag.help);
}

std::string taken_by_list_flag(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional() || option->get_expected_max() <= 1 || option->results().empty()) continue;
    const std::string& last = option->results().back();
    if (looks_like_model(last))
      return cat("; ", option->get_name(), " has taken ", last,
                 " as one of its values: write it before the flags, or after --");
  }
  return "";
}

}  // namespace lmdeploy
