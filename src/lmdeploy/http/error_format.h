// Whose words an error is told in. Anthropic's clients understand no other than their own.
#pragma once

#include <string>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"

namespace lmdeploy::http {

enum class ErrorFormat { kOpenAi, kAnthropic };

/// By the path: Anthropic's under /v1/messages and /anthropic. `url` need not be set: then by the target.
ErrorFormat error_format(const Request& request);

/// {"type": "error", "error": {"type", "message"}}: the body of an error of that status in Anthropic's
/// format.
JsonObject anthropic_error(int status, const std::string& message);

}  // namespace lmdeploy::http
