// Who may ask.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/http/message.h"

namespace lmdeploy::http {

/// Whether "Authorization: Bearer KEY", or "x-api-key: KEY" as Anthropic's clients send it, has one of
/// `keys`. The time it takes does not tell how much of a key was right.
bool has_key(const Headers& headers, const std::vector<std::string>& keys);

}  // namespace lmdeploy::http
