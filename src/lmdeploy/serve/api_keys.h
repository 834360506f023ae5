// Who may use the server.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/http/message.h"

namespace lmdeploy {

/// "Authorization: Bearer KEY", or "x-api-key: KEY" as Anthropic's clients send it. Throws ApiError 401
/// unless it is one of `keys`, or there are none. The time it takes does not depend on where a wrong key
/// differs.
void check_api_key(const http::Request& request, const std::vector<std::string>& keys);

}  // namespace lmdeploy
