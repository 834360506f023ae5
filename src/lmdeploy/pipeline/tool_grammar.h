// What makes a model call a tool: the response_format of a well-formed call.
#pragma once

#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/text/grammar/response_format.h"

namespace lmdeploy {

/// The form of calls of any of `tools`, or of the one named `function` when that is not empty, with valid
/// arguments: of one, or with `several` of one or more where the parser's calls stand between tags. As the
/// tool-call parser `parser` reads it. `tools`: as chat requests have them, {"type": "function", "function":
/// {"name", "parameters"}} or the inner objects. Throws Error(kInvalidArgument) for malformed tools, a name
/// that none of them has and an unknown parser, Error(kUnsupported) for a parser whose calls are not JSON
/// objects between fixed texts.
ResponseFormat tool_call_format(const Json& tools, std::string_view function, std::string_view parser,
                                bool several = false);

}  // namespace lmdeploy
