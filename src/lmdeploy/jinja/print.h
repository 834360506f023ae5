// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

/// str(value). Undefined gives nothing.
std::string to_text(const Value& value);
std::string repr(const Value& value);
/// Appends repr(value); `depth`: how many values are around it.
void append_repr(std::string& out, const Value& value, int depth);
/// 1.0, 1e-07, inf: the shortest digits that read back as `value`.
std::string float_text(double value);

/// The options of json.dumps().
struct JsonStyle {
  std::optional<std::string> indent;  // of one level; unset: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
/// Throws Failure for what JSON cannot say (undefined, generators, functions).
std::string to_json(const Value& value, const JsonStyle& style);

}  // namespace lmdeploy::jinja
