// POST /v1/chat/completions.
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/openai/chat_request.h"
#include "lmdeploy/serve/openai/token_logprobs.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

/// Writes the pieces of one request in OpenAI's words.
class ChatWriter {
 public:
  ChatWriter(const ChatRequest& request, Generation& generation)
      : request_(request),
        generation_(generation),
        tokenizer_(generation.pipeline().tokenizer()),
        id_("chatcmpl-" + http::random_name(24)),
        created_(unix_time()),
        role_sent_(generation.answers().size(), false) {}

  JsonObject head(const char* object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", request_.model}};
  }

  /// The events of a piece: nothing for one that only shows that tokens came.
  std::string events(AnswerPiece& piece) {
    JsonObject delta = delta_of(piece.text);
    Json logprobs = logprobs_of(piece);
    if (request_.return_token_ids && !piece.token_ids.empty())
      delta["gen_tokens"] = ids_json(piece.token_ids);
    std::string events;
    if (!delta.empty() || !logprobs.is_null())
      events += event(piece.index, std::move(delta), std::move(logprobs), nullptr);
    if (piece.finish == FinishReason::kNone) return events;
    const bool calls = generation_.answers()[piece.index].has_tool_calls();
    return events + event(piece.index, {}, nullptr, Json(finish_name(piece.finish, calls)));
  }

  std::string usage_event() const {
    JsonObject chunk = head("chat.completion.chunk");
    chunk["choices"] = JsonArray();
    chunk["usage"] = generation_.usage(generation_.answers().size());
    return sse_event(chunk);
  }

  Json logprobs_of(const AnswerPiece& piece) const {
    if (!request_.logprobs || piece.logprobs.empty() || tokenizer_ == nullptr) return nullptr;
    return chat_logprobs(piece, *tokenizer_, request_.num_top_logprobs);
  }

 private:
  JsonObject delta_of(const OutputDelta& text) const {
    JsonObject delta;
    if (!text.content.empty()) delta["content"] = text.content;
    if (!text.reasoning_content.empty()) delta["reasoning_content"] = text.reasoning_content;
    if (text.tool_calls.empty()) return delta;
    JsonArray calls;
    for (const ToolCallDelta& call : text.tool_calls) {
      JsonObject entry{{"index", call.index}};
      JsonObject function{{"arguments", call.arguments}};
      if (!call.name.empty()) {
        entry["id"] = call.id;
        entry["type"] = "function";
        function["name"] = call.name;
      }
      entry["function"] = std::move(function);
      calls.push_back(std::move(entry));
    }
    delta["tool_calls"] = std::move(calls);
    return delta;
  }

  std::string event(size_t index, JsonObject delta, Json logprobs, Json finish) {
    if (!role_sent_[index]) {
      role_sent_[index] = true;
      delta["role"] = "assistant";
      if (!delta.contains("content")) delta["content"] = "";
    }
    JsonObject choice{{"index", index},
                      {"delta", std::move(delta)},
                      {"logprobs", std::move(logprobs)},
                      {"finish_reason", std::move(finish)}};
    JsonObject chunk = head("chat.completion.chunk");
    chunk["choices"] = JsonArray{std::move(choice)};
    if (request_.include_usage) chunk["usage"] = nullptr;
    return sse_event(chunk);
  }

  const ChatRequest& request_;
  const Generation& generation_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const std::string id_;
  const int64_t created_;
  std::vector<bool> role_sent_;
};

/// One answer as it grows.
struct WholeChoice {
  std::string content, reasoning;
  std::vector<ToolCall> calls;
  std::vector<int> token_ids;
  JsonArray logprobs;
  FinishReason finish = FinishReason::kNone;
  bool cut_off = false;  // the last call broke off

  void append(AnswerPiece& piece, const Json& piece_logprobs) {
    cut_off = cut_off || piece.text.cut_off;
    content += piece.text.content;
    reasoning += piece.text.reasoning_content;
    for (ToolCallDelta& call : piece.text.tool_calls) {
      if (!call.name.empty()) calls.push_back({std::move(call.id), std::move(call.name), {}});
      calls.back().arguments += call.arguments;
    }
    token_ids.insert(token_ids.end(), piece.token_ids.begin(), piece.token_ids.end());
    if (piece_logprobs.is_object())
      for (const Json& entry : piece_logprobs.as_object().at("content").as_array()) logprobs.push_back(entry);
    finish = piece.finish;
  }

  JsonObject message(bool with_token_ids) const {
    JsonObject message{{"role", "assistant"}};
    const bool nothing_said = content.empty() && !calls.empty();
    message["content"] = nothing_said ? Json(nullptr) : Json(content);
    message["reasoning_content"] = reasoning.empty() ? Json(nullptr) : Json(reasoning);
    if (calls.empty()) {
      message["tool_calls"] = nullptr;
    } else {
      JsonArray list;
      for (const ToolCall& call : calls)
        list.push_back(
            JsonObject{{"id", call.id},
                       {"type", "function"},
                       {"function", JsonObject{{"name", call.name}, {"arguments", call.arguments}}}});
      message["tool_calls"] = std::move(list);
    }
    if (with_token_ids) message["gen_tokens"] = ids_json(token_ids);
    return message;
  }
};

Json whole_answer(const ChatRequest& request, const std::vector<WholeChoice>& choices,
                  const ChatWriter& writer, const Generation& generation) {
  JsonArray list;
  for (size_t i = 0; i < choices.size(); ++i) {
    const WholeChoice& choice = choices[i];
    list.push_back(JsonObject{
        {"index", i},
        {"message", choice.message(request.return_token_ids)},
        {"logprobs", request.logprobs ? Json(JsonObject{{"content", choice.logprobs}}) : Json(nullptr)},
        {"finish_reason", finish_name(choice.finish, !choice.calls.empty() && !choice.cut_off)}});
  }
  JsonObject body = writer.head("chat.completion");
  body["choices"] = std::move(list);
  body["usage"] = generation.usage(choices.size());
  return body;
}

}  // namespace

http::Task<> chat_completions(Service& service, http::Exchange& exchange) {
  ChatRequest request = read_chat_request(exchange.request(), service);
  encode_prompt(request, *service.pipeline());
  Generation generation = co_await start_generation(service, exchange, std::move(request.generation));
  ChatWriter writer(request, generation);
  if (request.stream) {
    co_await stream_answers(
        exchange, generation.answers(), [&](AnswerPiece& piece) { return writer.events(piece); },
        [&] { return request.include_usage ? writer.usage_event() : std::string(); });
    co_return;
  }
  std::vector<WholeChoice> choices(generation.answers().size());
  co_await read_answers(generation.answers(), [&](AnswerPiece& piece) {
    choices[piece.index].append(piece, writer.logprobs_of(piece));
  });
  co_await exchange.respond(json_response(whole_answer(request, choices, writer, generation)));
}

}  // namespace lmdeploy
