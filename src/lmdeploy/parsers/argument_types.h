// JSON values for arguments that a model writes as plain text.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// The schema of the function's arguments in `tools` (OpenAI's array, or null); nullptr where there is none.
const Json* find_parameters(const Json& tools, std::string_view function);

/// JSON text of `value` for the argument `key`. Text, unless the schema `parameters` (nullptr: none) asks for
/// another type and the value is JSON or a Python literal.
std::string typed_argument(const Json* parameters, std::string_view key, std::string_view value);

/// JSON text of a value that is not text, or of the text if it turns out to be no JSON.
std::string json_argument(std::string_view value);

}  // namespace lmdeploy
