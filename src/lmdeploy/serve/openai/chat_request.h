// The body of /v1/chat/completions.
#pragma once

#include <string>

#include "lmdeploy/serve/fields.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/service.h"

namespace lmdeploy {

const Fields& chat_fields();

struct ChatRequest {
  std::string model;  // as the client names it
  Prompt prompt;
  RunOptions options;
  GenerationRequest generation;  // without the prompts
  bool stream = false, include_usage = false;
  bool return_token_ids = false;
  bool one_call = false;  // parallel_tool_calls is false: further calls are dropped
  bool logprobs = false;
  int num_top_logprobs = 0;
};

/// Throws ApiError in LMDeploy's order: the model first, then the fields of sampling, then the rest.
ChatRequest read_chat_request(const http::Request& request, const Service& service);

/// Chooses the parser that takes thoughts and calls out of the answer. Throws ApiError when options.tools
/// need one that is not known.
void set_parser(ChatRequest& request, const Service& service);

/// After set_parser(): the answer must be a call, of `function` unless that is empty. Throws ApiError where
/// the parser's form cannot be forced; of one function that is not an error.
void force_call(ChatRequest& request, const std::string& function);

/// Renders and tokenises; fills in generation.prompts and what the parser must know of the prompt.
void encode_prompt(ChatRequest& request, const Pipeline& pipeline);

}  // namespace lmdeploy
