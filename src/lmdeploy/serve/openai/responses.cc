// POST /v1/responses: OpenAI's newer protocol, without storing anything.
#include <utility>

#include "lmdeploy/http/error_format.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/openai/responses_request.h"
#include "lmdeploy/serve/openai/token_logprobs.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

/// One item of the output: a thought, a message or a call.
struct OutputItem {
  enum class Kind { kThought, kMessage, kCall };
  Kind kind = Kind::kMessage;
  std::string id, text;       // of a call: its arguments
  std::string call_id, name;  // of a call
  JsonArray logprobs = {};    // of a message, when asked for

  JsonObject part() const {
    JsonObject part;
    part["type"] = kind == Kind::kThought ? "reasoning_text" : "output_text";
    part["text"] = text;
    if (kind == Kind::kMessage) {
      part["annotations"] = JsonArray();
      part["logprobs"] = logprobs;
    }
    return part;
  }

  JsonObject json(const char* status) const {
    JsonObject item;
    item["id"] = id;
    item["type"] = kind == Kind::kThought   ? "reasoning"
                   : kind == Kind::kMessage ? "message"
                                            : "function_call";
    item["status"] = status;
    if (kind == Kind::kCall) {
      item["call_id"] = call_id;
      item["name"] = name;
      item["arguments"] = text;
      return item;
    }
    JsonArray content;
    if (!text.empty() || std::string_view(status) != "in_progress") content.push_back(part());
    if (kind == Kind::kThought) item["summary"] = JsonArray();
    if (kind == Kind::kMessage) item["role"] = "assistant";
    item["content"] = std::move(content);
    return item;
  }
};

/// The answer as it grows, with the events that tell of it.
class ResponseWriter {
 public:
  ResponseWriter(const ResponsesRequest& request, const Generation& generation)
      : request_(request),
        generation_(generation),
        id_("resp_" + http::random_name(24)),
        created_(unix_time()) {}

  std::string begin() {
    JsonObject created, progress;
    created["response"] = json("in_progress");
    progress["response"] = json("in_progress");
    const std::string first = event("response.created", std::move(created));
    return first + event("response.in_progress", std::move(progress));
  }

  /// What a piece adds. In whole answers nobody reads the events.
  std::string take(const AnswerPiece& piece) {
    std::string out;
    gather_logprobs(piece);
    if (!piece.text.reasoning_content.empty())
      out += append(OutputItem::Kind::kThought, piece.text.reasoning_content);
    if (!piece.text.content.empty()) out += append(OutputItem::Kind::kMessage, piece.text.content);
    for (const ToolCallDelta& call : piece.text.tool_calls) out += append_call(call);
    if (piece.finish == FinishReason::kNone) return out;
    if (items_.empty()) out += open({OutputItem::Kind::kMessage, "msg_" + http::random_name(24), {}, {}, {}});
    finish_ = piece.finish;
    return out + close();
  }

  std::string end() {
    const bool whole = finish_ == FinishReason::kStop;
    JsonObject data;
    data["response"] = json(whole ? "completed" : "incomplete");
    return event(whole ? "response.completed" : "response.incomplete", std::move(data));
  }

  std::string fail(const ApiErrorInfo& info) {
    JsonObject data;
    data["response"] = http::failed_response(json("failed"), info.message);
    return event("response.failed", std::move(data));
  }

  Json whole() const { return json(finish_ == FinishReason::kStop ? "completed" : "incomplete"); }

 private:
  JsonObject json(const char* status) const {
    const bool running = std::string_view(status) == "in_progress";
    JsonObject body;
    body["id"] = id_;
    body["object"] = "response";
    body["created_at"] = created_;
    body["status"] = status;
    body["error"] = nullptr;
    body["incomplete_details"] = nullptr;
    if (std::string_view(status) == "incomplete") {
      JsonObject details;
      details["reason"] =
          finish_ == FinishReason::kLength ? "max_output_tokens" : std::string(to_string(finish_));
      body["incomplete_details"] = std::move(details);
    }
    JsonArray output;
    for (const OutputItem& item : items_) output.push_back(item.json(status_of(item)));
    body["output"] = std::move(output);
    for (const auto& entry : request_.echo) body[entry.key()] = entry.value();
    body["usage"] = running ? Json(nullptr) : usage();
    return body;
  }

  /// What cuts the answer off cuts its last item off.
  const char* status_of(const OutputItem& item) const {
    const bool cut =
        finish_ != FinishReason::kNone && finish_ != FinishReason::kStop && &item == &items_.back();
    return cut ? "incomplete" : "completed";
  }

  /// Of tokens whose text has not been told yet.
  void gather_logprobs(const AnswerPiece& piece) {
    const std::shared_ptr<const Tokenizer> tokenizer = generation_.pipeline().tokenizer();
    if (!request_.logprobs || piece.logprobs.empty() || tokenizer == nullptr) return;
    const Json all = chat_logprobs(piece, *tokenizer, request_.num_top_logprobs);
    for (const Json& entry : all.as_object().at("content").as_array()) logprobs_.push_back(entry);
  }

  /// As the tokenizer spells the thoughts: the parser does not say which tokens they came from.
  size_t num_thought_tokens() const {
    const std::shared_ptr<const Tokenizer> tokenizer = generation_.pipeline().tokenizer();
    size_t count = 0;
    for (const OutputItem& item : items_)
      if (item.kind == OutputItem::Kind::kThought)
        count += tokenizer->encode(item.text, {.add_special_tokens = false}).size();
    return count;
  }

  Json usage() const {
    const AnswerCounts& counts = generation_.answers()[0].counts();
    JsonObject cached, reasoning, usage;
    cached["cached_tokens"] = counts.cached_tokens;
    reasoning["reasoning_tokens"] = num_thought_tokens();
    usage["input_tokens"] = counts.prompt_tokens;
    usage["input_tokens_details"] = std::move(cached);
    usage["output_tokens"] = counts.generated_tokens;
    usage["output_tokens_details"] = std::move(reasoning);
    usage["total_tokens"] = counts.prompt_tokens + counts.generated_tokens;
    return usage;
  }

  std::string event(const char* type, JsonObject data) {
    JsonObject whole;
    whole["type"] = type;
    whole["sequence_number"] = sequence_++;
    for (auto& entry : data) whole[entry.key()] = std::move(entry.value());
    return http::sse_named_event(whole);
  }

  /// {"item_id", "output_index", "content_index"} of the item that is open.
  JsonObject place() const {
    JsonObject place;
    place["item_id"] = items_.back().id;
    place["output_index"] = items_.size() - 1;
    if (items_.back().kind != OutputItem::Kind::kCall) place["content_index"] = 0;
    return place;
  }

  std::string open(OutputItem item) {
    std::string out = close();
    items_.push_back(std::move(item));
    is_open_ = true;
    JsonObject added;
    added["output_index"] = items_.size() - 1;
    added["item"] = items_.back().json("in_progress");
    out += event("response.output_item.added", std::move(added));
    if (items_.back().kind == OutputItem::Kind::kCall) return out;
    JsonObject part = place();
    part["part"] = items_.back().part();
    return out + event("response.content_part.added", std::move(part));
  }

  std::string append(OutputItem::Kind kind, const std::string& text) {
    std::string out;
    if (!is_open_ || items_.back().kind != kind)
      out = open(
          {kind, (kind == OutputItem::Kind::kThought ? "rs_" : "msg_") + http::random_name(24), {}, {}, {}});
    items_.back().text += text;
    JsonObject delta = place();
    delta["delta"] = text;
    const JsonArray logprobs = std::exchange(logprobs_, {});  // those of thoughts are not told
    if (kind == OutputItem::Kind::kMessage) {
      for (const Json& entry : logprobs) items_.back().logprobs.push_back(entry);
      delta["logprobs"] = logprobs;
    }
    return out + event(kind == OutputItem::Kind::kThought ? "response.reasoning_text.delta"
                                                          : "response.output_text.delta",
                       std::move(delta));
  }

  std::string append_call(const ToolCallDelta& call) {
    std::string out;
    if (!call.name.empty())
      out = open({OutputItem::Kind::kCall, "fc_" + http::random_name(24), {}, call.id, call.name});
    logprobs_.clear();
    if (call.arguments.empty()) return out;
    items_.back().text += call.arguments;
    JsonObject delta = place();
    delta["delta"] = call.arguments;
    return out + event("response.function_call_arguments.delta", std::move(delta));
  }

  std::string close() {
    if (!is_open_) return {};
    is_open_ = false;
    const OutputItem& item = items_.back();
    std::string out;
    JsonObject done = place();
    if (item.kind == OutputItem::Kind::kCall) {
      done["name"] = item.name;
      done["arguments"] = item.text;
      out += event("response.function_call_arguments.done", std::move(done));
    } else {
      done["text"] = item.text;
      if (item.kind == OutputItem::Kind::kMessage) done["logprobs"] = item.logprobs;
      out += event(item.kind == OutputItem::Kind::kThought ? "response.reasoning_text.done"
                                                           : "response.output_text.done",
                   std::move(done));
      JsonObject part = place();
      part["part"] = item.part();
      out += event("response.content_part.done", std::move(part));
    }
    JsonObject data;
    data["output_index"] = items_.size() - 1;
    data["item"] = item.json(status_of(item));
    return out + event("response.output_item.done", std::move(data));
  }

  const ResponsesRequest& request_;
  const Generation& generation_;
  const std::string id_;
  const int64_t created_;
  std::vector<OutputItem> items_;
  JsonArray logprobs_;  // of tokens whose text has not been told yet
  bool is_open_ = false;
  int64_t sequence_ = 0;
  FinishReason finish_ = FinishReason::kNone;
};

http::Task<> stream_response(http::Exchange& exchange, Answers& answers, ResponseWriter& writer) {
  co_await answers.wait_for_first(kFirstPiecePatience);
  co_await exchange.begin_stream(sse_head());
  const std::string beginning = writer.begin();
  co_await exchange.write(beginning);
  bool failed = false;
  while (!failed) {
    const std::optional<AnswerPiece> piece = co_await answers.next();
    if (!piece) break;
    failed = piece->error.has_value();
    const std::string bytes = failed ? writer.fail(*piece->error) : writer.take(*piece);
    co_await exchange.write(bytes);
  }
  const std::string end = failed ? std::string() : writer.end();
  co_await exchange.write(end);
  co_await exchange.finish();
}

}  // namespace

http::Task<> responses(Service& service, http::Exchange& exchange) {
  ResponsesRequest request = read_responses_request(exchange.request(), service);
  encode_prompt(request.chat, *service.pipeline());
  Generation generation = co_await start_generation(service, exchange, std::move(request.chat.generation));
  ResponseWriter writer(request, generation);
  if (request.chat.stream) {
    co_await stream_response(exchange, generation.answers(), writer);
    co_return;
  }
  co_await read_answers(generation.answers(), [&](AnswerPiece& piece) { writer.take(piece); });
  co_await exchange.respond(json_response(writer.whole()));
}

}  // namespace lmdeploy
