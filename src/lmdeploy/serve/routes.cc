#include "lmdeploy/serve/routes.h"

#include "lmdeploy/serve/anthropic/messages_request.h"
#include "lmdeploy/serve/openai/chat_request.h"
#include "lmdeploy/serve/openai/responses_request.h"

namespace lmdeploy {

const std::vector<Route>& routes() {
  static const std::vector<Route> table = {
      {"GET", "/v1/models", list_models, "The models that this server has"},
      {"GET", "/v1/models/{model}", show_model, "One of them"},
      {"POST", "/v1/chat/completions", chat_completions, "Answers a conversation", chat_fields,
       "ChatCompletionRequest"},
      {"POST", "/v1/completions", completions, "Continues a text", completion_fields, "CompletionRequest"},
      {"POST", "/v1/embeddings", embeddings, "Not supported by models that generate text", embedding_fields,
       "EmbeddingsRequest"},
      {"POST", "/v1/encode", encode, "Text to token ids", encode_fields, "EncodeRequest"},
      {"POST", "/v1/decode", decode, "Token ids to text", decode_fields, "DecodeRequest"},
      {"POST", "/v1/render", render_prompt, "The prompt that the model gets for a conversation",
       render_fields, "RenderRequest"},
      {"POST", "/v1/responses", responses, "Answers a conversation, in the words of OpenAI's Responses",
       responses_fields, "ResponsesRequest"},
      {"POST", "/v1/messages", messages, "Answers a conversation, in Anthropic's words", messages_fields,
       "AnthropicMessagesRequest"},
      {"POST", "/v1/messages/count_tokens", count_tokens, "Tokens of a conversation", count_tokens_fields,
       "AnthropicCountTokensRequest"},
      {"GET", "/anthropic/v1/models", list_anthropic_models, "The models, in Anthropic's words"},
      {"GET", "/anthropic/v1/models/{model}", show_anthropic_model, "One of them"},
      {"POST", "/v1/chat/interactive", chat_interactive, "A turn of a conversation that the server keeps",
       interactive_fields, "GenerateRequest"},
      {"POST", "/get_ppl", get_ppl, "Mean negative log-likelihood of a text's tokens", ppl_fields,
       "PplRequest"},
      {"POST", "/pooling", pooling, "Scores of a reward model", pooling_fields, "PoolingRequest"},
      {"POST", "/sleep", sleep, "Gives the memory of weights, keys and values back"},
      {"POST", "/wakeup", wakeup, "Loads the model again"},
      {"GET", "/is_sleeping", is_sleeping, "Whether the engine is asleep"},
      {"POST", "/update_weights", not_implemented, "Not supported"},
      {"GET", "/distserve/engine_info", not_implemented, "Not supported"},
      {"POST", "/distserve/p2p_initialize", not_implemented, "Not supported"},
      {"POST", "/distserve/p2p_connect", not_implemented, "Not supported"},
      {"POST", "/distserve/p2p_drop_connect", not_implemented, "Not supported"},
      {"POST", "/distserve/free_cache", not_implemented, "Not supported"},
      {"POST", "/v1/chat/completions_qos", chat_completions_qos,
       "Answers a conversation, by the user's quota", chat_fields, "ChatCompletionRequest", Access::kKey,
       Shown::kWithQuotas},
      {"POST", "/v1/completions_qos", completions_qos, "Continues a text, by the user's quota",
       completion_fields, "CompletionRequest", Access::kKey, Shown::kWithQuotas},
      {"POST", "/v1/chat/interactive_qos", chat_interactive_qos,
       "A turn of a conversation that the server keeps, by the user's quota", interactive_fields,
       "GenerateRequest", Access::kKey, Shown::kWithQuotas},
      {"POST", "/generate", generate, "Continues raw text or token ids", generate_fields, "GenerateReqInput"},
      {"GET", "/health", health, "200 when requests can be served, else 503", nullptr, "", Access::kOpen},
      {"GET", "/metrics", metrics_page, "Counts and times for Prometheus"},
      {"GET", "/terminate", terminate, "Ends the server, where that is allowed"},
      {"POST", "/abort_request", abort_request, "Ends running requests, where that is allowed", abort_fields,
       "AbortRequest"},
      {"GET", "/openapi.json", openapi_document, "This interface as OpenAPI 3.1", nullptr, "", Access::kOpen},
  };
  return table;
}

bool is_path_of(const Route& route, std::string_view path) {
  const std::string_view pattern = route.path;
  const size_t open = pattern.find('{');
  if (open == std::string_view::npos) return pattern == path;
  return path.size() > open && path.starts_with(pattern.substr(0, open));
}

}  // namespace lmdeploy
