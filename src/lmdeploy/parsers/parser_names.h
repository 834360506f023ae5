// Which parsers there are, and which of them fit a chat template.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// Which parsers to use: names as --reasoning-parser and --tool-call-parser take them; "": none.
struct OutputParserNames {
  std::string reasoning, tool_calls;

  /// Throws Error(kInvalidArgument) that lists the known names, or says that two do not go together.
  void validate() const;
  /// gpt-oss: one form holds thoughts, calls and answer.
  bool harmony() const;
};

std::vector<std::string> reasoning_parser_names();  // sorted
std::vector<std::string> tool_parser_names();       // sorted

/// The parsers that fit a chat template: its catalogue name, or the source of a Jinja template.
OutputParserNames parsers_for_template(std::string_view name, std::string_view jinja_source);

/// Whether a rendered prompt ends inside a thought, so that the output does not open one itself.
bool prompt_opens_thought(std::string_view prompt);

}  // namespace lmdeploy
