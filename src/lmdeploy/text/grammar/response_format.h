// What an answer must be, as users say it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

struct ResponseFormat {
  enum class Kind {
    kText,        // anything
    kJsonObject,  // any JSON object
    kJsonSchema,  // `schema`
    kRegex,       // `pattern` matches all of it
    kChoice,      // one of `choices`
  };
  Kind kind = Kind::kText;
  Json schema;
  std::string pattern;
  std::vector<std::string> choices;
  std::string prefix, suffix;  // kJsonSchema: stand before and after the JSON text
  std::string separator;       // not empty: any number of these, this between them
  /// Keywords that do not act are refused, and objects are closed unless they say otherwise.
  bool strict = false;
  bool compact = false;  // no white space between JSON tokens

  bool operator==(const ResponseFormat&) const = default;
};

/// {"type": "text"}
/// {"type": "json_object", "compact"}
/// {"type": "json_schema", "json_schema": {"name", "schema", "strict", "description"}, "compact"}
/// {"type": "regex_schema", "regex_schema": "..."}
/// {"type": "choice", "choice": ["...", ...]}
/// Throws Error(kInvalidArgument) beginning with `where`: the field, what was found, what was expected.
ResponseFormat read_response_format(const Json& json, std::string_view where);

}  // namespace lmdeploy
