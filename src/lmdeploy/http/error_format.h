// Whose words an error is told in. Anthropic's clients understand no other than their own.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"

namespace lmdeploy::http {

enum class ErrorFormat { kOpenAi, kAnthropic };

/// By the path: Anthropic's under /v1/messages and /anthropic. `url` need not be set: then by the target.
ErrorFormat error_format(const Request& request);

/// {"message", "type", "param", "code"}: "error" in OpenAI's format. `param`: the request's field, empty for
/// null; `code`: a stable name, empty for the usual one of the status.
JsonObject openai_error(int status, const std::string& message, const std::string& param = "",
                        const std::string& code = "");
/// The body of such an error, with LMDeploy's flat keys beside it: {"error": {...}, "object": "error",
/// "message", "type", "param", "code": the status}.
JsonObject openai_error_body(int status, const std::string& message, const std::string& param = "",
                             const std::string& code = "");
/// What a response of OpenAI's Responses protocol is once it has failed: with "status" and "error".
JsonObject failed_response(JsonObject response, const std::string& message);

/// {"type": "error", "error": {"type", "message"}}: the body of an error of that status in Anthropic's
/// format.
JsonObject anthropic_error(int status, const std::string& message);

}  // namespace lmdeploy::http
