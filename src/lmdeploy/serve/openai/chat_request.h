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
  bool logprobs = false;
  int num_top_logprobs = 0;
};

/// Throws ApiError in LMDeploy's order: the model first, then the fields of sampling, then the rest.
ChatRequest read_chat_request(const http::Request& request, const Service& service);

/// What a request says of tools.
struct ToolChoice {
  Json tools = nullptr;       // as OpenAI's chat has them; null: the model is told of none
  bool forced = false;        // a call must come
  std::string function = {};  // of this one; empty: of any
  size_t first = 0;           // where the first of `tools` stands in the client's list
  const char* parameters = ".function.parameters";  // where a tool of the client's has its schema
};

/// Tells the model of the tools, and chooses the parser that takes thoughts and calls out of the answer;
/// sampling options and template_extra are set already. Throws ApiError when no parser is known that tools
/// need, or when its form of calls cannot be forced; of one function that is not an error.
void set_tools(ChatRequest& request, ToolChoice choice, const Service& service);

/// Renders and tokenises; fills in generation.prompts and what the parser must know of the prompt.
void encode_prompt(ChatRequest& request, const Pipeline& pipeline);

}  // namespace lmdeploy
