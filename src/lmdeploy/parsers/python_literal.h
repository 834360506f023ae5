// Python's spelling of values, which models use where they were asked for JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

/// JSON text of a list, tuple, dict, string, number, True, False or None as Python's repr() writes it: 'a'
/// for "a", (1,) for [1]. Nothing for any other text.
std::optional<std::string> python_literal_to_json(std::string_view text);

}  // namespace lmdeploy
