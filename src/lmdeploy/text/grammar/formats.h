// The formats of JSON Schema strings, as regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy::grammar {

/// An expression for parse_regex() that the whole string matches; nothing for an unknown name.
std::optional<std::string> format_pattern(std::string_view name);
/// All names, for messages.
std::string_view format_names();

}  // namespace lmdeploy::grammar
