// What the proxy reads in a request's body; everything else is the node's business.
#pragma once

#include <string_view>

#include "lmdeploy/proxy/node_table.h"

namespace lmdeploy::proxy {

/// Throws Error(kInvalidData) for what is no JSON object or has a "model" that is no string; a missing one is
/// "". The prefix is that of the system message and the first message of the user, which stay the same while
/// a conversation grows, or of the prompt; a kilobyte of each.
Inquiry read_inquiry(std::string_view body);

}  // namespace lmdeploy::proxy
