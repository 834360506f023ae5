// JSON values for arguments that a model writes as plain text.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// JSON text of `value` for argument `key` of `function`. Text, unless the function's schema in `tools`
/// (OpenAI's array, or null) asks for another type and the value is JSON (or Python's True, False, None).
std::string argument_json(const Json& tools, std::string_view function, std::string_view key,
                          std::string_view value);

}  // namespace lmdeploy
