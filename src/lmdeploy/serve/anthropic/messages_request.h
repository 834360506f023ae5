// The body of /v1/messages, in terms of a chat request.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/serve/openai/chat_request.h"

namespace lmdeploy {

struct MessagesRequest {
  ChatRequest chat;
  std::vector<std::string> stop_sequences;
};

const Fields& messages_fields();
const Fields& count_tokens_fields();

/// Throws ApiError. `counting`: max_tokens may be missing.
MessagesRequest read_messages_request(const http::Request& request, const Service& service, bool counting);

}  // namespace lmdeploy
