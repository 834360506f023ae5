// The body of /v1/responses, in terms of a chat request.
#pragma once

#include "lmdeploy/serve/openai/chat_request.h"

namespace lmdeploy {

struct ResponsesRequest {
  ChatRequest chat;
  bool logprobs = false;  // of the answer's text
  int num_top_logprobs = 0;
  JsonObject echo;  // what the answer repeats of the request: instructions, tools, temperature, ...
};

const Fields& responses_fields();
/// Throws ApiError.
ResponsesRequest read_responses_request(const http::Request& request, const Service& service);

}  // namespace lmdeploy
