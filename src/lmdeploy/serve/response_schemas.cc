#include "lmdeploy/serve/response_schemas.h"

#include <map>

namespace lmdeploy {
namespace {

// Objects may hold more fields than these; of two that depend on the request, both are described.
constexpr const char* kSchemas = R"json({
  "ErrorResponse": {
    "type": "object", "required": ["object", "message", "type", "param", "code", "error"],
    "properties": {
      "object": {"const": "error"}, "message": {"type": "string"}, "type": {"type": "string"},
      "param": {"type": ["string", "null"]}, "code": {"type": "integer", "description": "The status"},
      "error": {
        "type": "object", "required": ["message", "type", "param", "code"],
        "properties": {
          "message": {"type": "string"}, "type": {"type": "string"}, "param": {"type": ["string", "null"]},
          "code": {"type": "string"}}}}},
  "Usage": {
    "type": "object", "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
    "properties": {
      "prompt_tokens": {"type": "integer", "minimum": 0}, "completion_tokens": {"type": "integer", "minimum": 0},
      "total_tokens": {"type": "integer", "minimum": 0},
      "prompt_tokens_details": {
        "type": "object", "properties": {"cached_tokens": {"type": "integer", "minimum": 0}}}}},
  "FinishReason": {"enum": ["stop", "length", "tool_calls", "abort", "error"]},
  "ModelCard": {
    "type": "object", "required": ["id", "object", "created", "owned_by"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "model"}, "created": {"type": "integer"},
      "owned_by": {"type": "string"}, "root": {"type": "string"}, "parent": {"type": ["string", "null"]},
      "max_model_len": {"type": "integer"}, "permission": {"type": "array", "items": {"type": "object"}}}},
  "ModelList": {
    "type": "object", "required": ["object", "data"],
    "properties": {
      "object": {"const": "list"},
      "data": {"type": "array", "items": {"$ref": "#/components/schemas/ModelCard"}}}},
  "TokenLogprob": {
    "type": "object", "required": ["token", "logprob", "bytes"],
    "properties": {
      "token": {"type": "string"}, "logprob": {"type": "number", "maximum": 0},
      "bytes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}},
      "top_logprobs": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
  "ChatLogprobs": {
    "type": "object", "required": ["content"],
    "properties": {"content": {"type": "array", "items": {"$ref": "#/components/schemas/TokenLogprob"}}}},
  "ToolCall": {
    "type": "object", "required": ["id", "type", "function"],
    "properties": {
      "id": {"type": "string"}, "type": {"const": "function"},
      "function": {
        "type": "object", "required": ["name", "arguments"],
        "properties": {"name": {"type": "string"}, "arguments": {"type": "string"}}}}},
  "ChatAnswerMessage": {
    "type": "object", "required": ["role", "content"],
    "properties": {
      "role": {"const": "assistant"}, "content": {"type": ["string", "null"]},
      "reasoning_content": {"type": ["string", "null"]},
      "tool_calls": {"type": ["array", "null"], "items": {"$ref": "#/components/schemas/ToolCall"}},
      "gen_tokens": {"type": "array", "items": {"type": "integer"}}}},
  "ChatCompletionResponse": {
    "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "chat.completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {
        "type": "array", "minItems": 1, "items": {
          "type": "object", "required": ["index", "message", "logprobs", "finish_reason"],
          "properties": {
            "index": {"type": "integer"}, "message": {"$ref": "#/components/schemas/ChatAnswerMessage"},
            "logprobs": {"anyOf": [{"$ref": "#/components/schemas/ChatLogprobs"}, {"type": "null"}]},
            "finish_reason": {"$ref": "#/components/schemas/FinishReason"}}}}}},
  "CompletionLogprobs": {
    "type": "object", "required": ["tokens", "token_logprobs", "top_logprobs", "text_offset"],
    "properties": {
      "tokens": {"type": "array", "items": {"type": "string"}},
      "token_logprobs": {"type": "array", "items": {"type": "number"}},
      "top_logprobs": {
        "type": "array", "items": {"type": "object", "additionalProperties": {"type": "number"}}},
      "text_offset": {"type": "array", "items": {"type": "integer", "minimum": 0}}}},
  "CompletionResponse": {
    "type": "object", "required": ["id", "object", "created", "model", "choices", "usage"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "text_completion"}, "created": {"type": "integer"},
      "model": {"type": "string"}, "usage": {"$ref": "#/components/schemas/Usage"},
      "choices": {
        "type": "array", "minItems": 1, "items": {
          "type": "object", "required": ["index", "text", "logprobs", "finish_reason"],
          "properties": {
            "index": {"type": "integer"}, "text": {"type": "string"},
            "logprobs": {"anyOf": [{"$ref": "#/components/schemas/CompletionLogprobs"}, {"type": "null"}]},
            "finish_reason": {"$ref": "#/components/schemas/FinishReason"},
            "gen_tokens": {"type": "array", "items": {"type": "integer"}}}}}}},
  "EncodeResponse": {
    "description": "Of several texts, lists of both", "type": "object", "required": ["input_ids", "length"],
    "properties": {
      "input_ids": {"anyOf": [
        {"type": "array", "items": {"type": "integer"}},
        {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}]},
      "length": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}}},
  "DecodeResponse": {
    "type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}},
  "RenderResponse": {
    "type": "object", "required": ["prompt", "input_ids", "length"],
    "properties": {
      "prompt": {"type": "string"}, "input_ids": {"type": "array", "items": {"type": "integer"}},
      "length": {"type": "integer"}}},
  "InteractiveResponse": {
    "description": "Of a stream, a line", "type": "object",
    "required": ["text", "tokens", "input_tokens", "history_tokens", "finish_reason"],
    "properties": {
      "text": {"type": "string"}, "tokens": {"type": "integer"}, "input_tokens": {"type": "integer"},
      "history_tokens": {"type": "integer"},
      "finish_reason": {"anyOf": [{"$ref": "#/components/schemas/FinishReason"}, {"type": "null"}]}}},
  "GenerateResponse": {
    "type": "object", "required": ["text", "output_ids", "meta_info"],
    "properties": {
      "text": {"type": "string"}, "output_ids": {"type": "array", "items": {"type": "integer"}},
      "meta_info": {
        "type": "object", "required": ["prompt_tokens", "completion_tokens", "finish_reason"],
        "properties": {
          "prompt_tokens": {"type": "integer"}, "completion_tokens": {"type": "integer"},
          "cached_tokens": {"type": "integer"},
          "finish_reason": {
            "type": ["object", "null"], "required": ["type"],
            "properties": {"type": {"$ref": "#/components/schemas/FinishReason"}}},
          "output_token_logprobs": {
            "type": ["array", "null"], "description": "[log probability, id] of each token",
            "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}}}}}},
  "PplResponse": {
    "type": "object", "required": ["ppl"],
    "properties": {"ppl": {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}}},
  "HealthResponse": {
    "type": "object", "required": ["status", "message"],
    "properties": {
      "status": {"enum": ["healthy", "initializing", "sleeping", "unhealthy"]}, "message": {"type": "string"}}},
  "SleepState": {
    "type": "object", "required": ["is_sleeping"], "properties": {"is_sleeping": {"type": "boolean"}}},
  "AnthropicError": {
    "type": "object", "required": ["type", "error"],
    "properties": {
      "type": {"const": "error"},
      "error": {
        "type": "object", "required": ["type", "message"],
        "properties": {"type": {"type": "string"}, "message": {"type": "string"}}}}},
  "AnthropicMessage": {
    "type": "object", "required": ["id", "type", "role", "model", "content", "stop_reason", "usage"],
    "properties": {
      "id": {"type": "string"}, "type": {"const": "message"}, "role": {"const": "assistant"},
      "model": {"type": "string"},
      "content": {
        "type": "array", "items": {
          "type": "object", "required": ["type"],
          "properties": {"type": {"enum": ["text", "thinking", "tool_use"]}, "text": {"type": "string"}}}},
      "stop_reason": {"enum": ["end_turn", "max_tokens", "stop_sequence", "tool_use"]},
      "stop_sequence": {"type": ["string", "null"]},
      "usage": {
        "type": "object", "required": ["input_tokens", "output_tokens"],
        "properties": {
          "input_tokens": {"type": "integer", "minimum": 0}, "output_tokens": {"type": "integer", "minimum": 0},
          "cache_read_input_tokens": {"type": "integer", "minimum": 0}}}}},
  "AnthropicTokenCount": {
    "type": "object", "required": ["input_tokens"], "properties": {"input_tokens": {"type": "integer"}}},
  "AnthropicModelList": {
    "type": "object", "required": ["data", "has_more", "first_id", "last_id"],
    "properties": {
      "has_more": {"type": "boolean"}, "first_id": {"type": "string"}, "last_id": {"type": "string"},
      "data": {
        "type": "array", "items": {
          "type": "object", "required": ["type", "id", "display_name", "created_at"],
          "properties": {"type": {"const": "model"}, "id": {"type": "string"}}}}}},
  "OpenAIResponse": {
    "type": "object", "required": ["id", "object", "created_at", "status", "output", "usage"],
    "properties": {
      "id": {"type": "string"}, "object": {"const": "response"}, "created_at": {"type": "integer"},
      "status": {"enum": ["completed", "incomplete", "failed", "in_progress"]},
      "error": {"type": ["object", "null"]}, "incomplete_details": {"type": ["object", "null"]},
      "output": {
        "type": "array", "items": {
          "type": "object", "required": ["id", "type", "status"],
          "properties": {"type": {"enum": ["message", "reasoning", "function_call"]}}}},
      "usage": {
        "type": ["object", "null"], "required": ["input_tokens", "output_tokens", "total_tokens"],
        "properties": {
          "input_tokens": {"type": "integer"}, "output_tokens": {"type": "integer"},
          "total_tokens": {"type": "integer"}}}}},
  "AnyObject": {"type": "object"}
})json";

constexpr const char* kJson = "application/json";
constexpr const char* kEvents = "text/event-stream";

const std::map<std::string_view, std::vector<ResponseContent>>& contents() {
  static const std::map<std::string_view, std::vector<ResponseContent>> table = {
      {"/v1/models", {{kJson, "ModelList"}}},
      {"/v1/models/{model}", {{kJson, "ModelCard"}}},
      {"/anthropic/v1/models/{model}", {{kJson, "AnyObject"}}},
      {"/v1/chat/completions", {{kJson, "ChatCompletionResponse"}, {kEvents, ""}}},
      {"/v1/completions", {{kJson, "CompletionResponse"}, {kEvents, ""}}},
      {"/v1/encode", {{kJson, "EncodeResponse"}}},
      {"/v1/decode", {{kJson, "DecodeResponse"}}},
      {"/v1/render", {{kJson, "RenderResponse"}}},
      {"/v1/chat/interactive", {{kJson, "InteractiveResponse"}, {kEvents, ""}}},
      {"/v1/messages", {{kJson, "AnthropicMessage"}, {kEvents, ""}}},
      {"/v1/messages/count_tokens", {{kJson, "AnthropicTokenCount"}}},
      {"/anthropic/v1/models", {{kJson, "AnthropicModelList"}}},
      {"/v1/responses", {{kJson, "OpenAIResponse"}, {kEvents, ""}}},
      {"/generate", {{kJson, "GenerateResponse"}, {kEvents, ""}}},
      {"/get_ppl", {{kJson, "PplResponse"}}},
      {"/is_sleeping", {{kJson, "SleepState"}}},
      {"/health", {{kJson, "HealthResponse"}}},
      {"/metrics", {{"text/plain", ""}}},
      {"/openapi.json", {{kJson, "AnyObject"}}},
  };
  return table;
}

}  // namespace

std::vector<ResponseContent> response_contents(std::string_view path) {
  if (path.ends_with("_qos")) path.remove_suffix(4);  // answered like the route without it
  const auto found = contents().find(path);
  return found == contents().end() ? std::vector<ResponseContent>{} : found->second;
}

const JsonObject& response_schemas() {
  static const Json schemas = parse_json(kSchemas, "response schemas");
  return schemas.as_object();
}

}  // namespace lmdeploy
