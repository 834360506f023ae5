// POST /v1/messages, /v1/messages/count_tokens; GET /anthropic/v1/models: Anthropic's protocol.
#include "lmdeploy/http/error_format.h"
#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/anthropic/messages_request.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

JsonObject typed(const char* type) {
  JsonObject object;
  object["type"] = type;
  return object;
}

Json usage_of(const AnswerCounts& counts) {
  JsonObject usage;
  usage["input_tokens"] = counts.prompt_tokens - counts.cached_tokens;
  usage["cache_read_input_tokens"] = counts.cached_tokens;
  usage["cache_creation_input_tokens"] = 0;
  usage["output_tokens"] = counts.generated_tokens;
  return usage;
}

/// Arguments that broke off are no object: then it is empty.
Json parsed_input(const std::string& arguments, bool cut_off) {
  return arguments.empty() || cut_off ? Json(JsonObject()) : parse_json(arguments, "tool arguments");
}

/// Why an answer ended, and by which of the client's texts.
class Ending {
 public:
  Ending(const MessagesRequest& request, std::shared_ptr<const Tokenizer> tokenizer)
      : request_(request), tokenizer_(std::move(tokenizer)) {}

  void append(const AnswerPiece& piece) {
    ids_.insert(ids_.end(), piece.token_ids.begin(), piece.token_ids.end());
    text_ += piece.text.content;
  }

  /// {"stop_reason", "stop_sequence"}
  JsonObject describe(FinishReason finish, bool has_whole_calls) const {
    JsonObject ending;
    const std::string* sequence = finish == FinishReason::kStop ? stop_sequence() : nullptr;
    ending["stop_reason"] = has_whole_calls                   ? "tool_use"
                            : finish == FinishReason::kLength ? "max_tokens"
                            : sequence != nullptr             ? "stop_sequence"
                                                              : "end_turn";
    ending["stop_sequence"] = sequence == nullptr || has_whole_calls ? Json(nullptr) : Json(*sequence);
    return ending;
  }

 private:
  /// The tokens spell it, the text leaves it out.
  const std::string* stop_sequence() const {
    if (request_.stop_sequences.empty() || tokenizer_ == nullptr) return nullptr;
    const std::string spelled = tokenizer_->decode(ids_, /*skip_special_tokens=*/false);
    for (const std::string& sequence : request_.stop_sequences)
      if (spelled.find(sequence) != std::string::npos && text_.find(sequence) == std::string::npos)
        return &sequence;
    return nullptr;
  }

  const MessagesRequest& request_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<int> ids_;
  std::string text_;
};

/// The blocks of an answer as they grow.
class ContentBlocks {
 public:
  void append(const OutputDelta& delta) {
    thought_ += delta.reasoning_content;
    text_ += delta.content;
    cut_off_ = cut_off_ || delta.cut_off;
    for (const ToolCallDelta& call : delta.tool_calls) {
      if (!call.name.empty()) calls_.push_back({call.id, call.name, {}});
      calls_.back().arguments += call.arguments;
    }
  }
  bool has_whole_calls() const { return !calls_.empty() && !cut_off_; }
  JsonArray json() const {
    JsonArray blocks;
    if (!thought_.empty()) {
      JsonObject block = typed("thinking");
      block["thinking"] = thought_;
      block["signature"] = "";
      blocks.push_back(std::move(block));
    }
    if (!text_.empty() || calls_.empty()) {
      JsonObject block = typed("text");
      block["text"] = text_;
      blocks.push_back(std::move(block));
    }
    for (const ToolCall& call : calls_) {
      JsonObject block = typed("tool_use");
      block["id"] = call.id;
      block["name"] = call.name;
      block["input"] = parsed_input(call.arguments, cut_off_ && &call == &calls_.back());
      blocks.push_back(std::move(block));
    }
    return blocks;
  }

 private:
  std::string thought_, text_;
  std::vector<ToolCall> calls_;
  bool cut_off_ = false;  // the last of them
};

JsonObject message_head(const MessagesRequest& request, JsonArray content, const AnswerCounts& counts) {
  JsonObject message;
  message["id"] = "msg_" + http::random_name(24);
  message["type"] = "message";
  message["role"] = "assistant";
  message["model"] = request.chat.model;
  message["content"] = std::move(content);
  message["stop_reason"] = nullptr;
  message["stop_sequence"] = nullptr;
  message["usage"] = usage_of(counts);
  return message;
}

std::string event(const JsonObject& data) { return http::sse_named_event(data); }

/// The events of a streamed answer: blocks open and close as thoughts, text and calls follow each other.
class MessageStream {
 public:
  MessageStream(const MessagesRequest& request, const Generation& generation)
      : request_(request), generation_(generation), ending_(request, generation.pipeline().tokenizer()) {}

  std::string events(const AnswerPiece& piece) {
    std::string out = started_ ? "" : start();
    ending_.append(piece);
    if (!piece.text.reasoning_content.empty())
      out += text_delta(Block::kThought, "thinking", piece.text.reasoning_content);
    if (!piece.text.content.empty()) out += text_delta(Block::kText, "text", piece.text.content);
    for (const ToolCallDelta& call : piece.text.tool_calls) out += call_delta(call);
    has_calls_ = has_calls_ && !piece.text.cut_off;
    return piece.finish == FinishReason::kNone ? out : out + end(piece.finish);
  }

 private:
  enum class Block { kNone, kThought, kText, kCall };

  std::string start() {
    started_ = true;
    JsonObject data = typed("message_start");
    AnswerCounts counts = generation_.answers()[0].counts();
    counts.generated_tokens = 0;
    data["message"] = message_head(request_, {}, counts);
    return event(data);
  }

  std::string open(Block block, JsonObject content) {
    std::string out = close();
    open_ = block;
    JsonObject data = typed("content_block_start");
    data["index"] = index_;
    data["content_block"] = std::move(content);
    return out + event(data);
  }

  std::string close() {
    if (open_ == Block::kNone) return {};
    open_ = Block::kNone;
    JsonObject data = typed("content_block_stop");
    data["index"] = index_++;
    return event(data);
  }

  std::string delta(JsonObject change) const {
    JsonObject data = typed("content_block_delta");
    data["index"] = index_;
    data["delta"] = std::move(change);
    return event(data);
  }

  std::string text_delta(Block block, const char* kind, const std::string& text) {
    std::string out;
    if (open_ != block) {
      JsonObject content = typed(kind);
      content[kind] = "";
      if (block == Block::kThought) content["signature"] = "";
      out = open(block, std::move(content));
    }
    JsonObject change = typed(block == Block::kThought ? "thinking_delta" : "text_delta");
    change[kind] = text;
    return out + delta(std::move(change));
  }

  std::string call_delta(const ToolCallDelta& call) {
    std::string out;
    if (!call.name.empty()) {
      has_calls_ = true;
      JsonObject content = typed("tool_use");
      content["id"] = call.id;
      content["name"] = call.name;
      content["input"] = JsonObject();
      out = open(Block::kCall, std::move(content));
    }
    if (call.arguments.empty()) return out;
    JsonObject change = typed("input_json_delta");
    change["partial_json"] = call.arguments;
    return out + delta(std::move(change));
  }

  std::string end(FinishReason finish) {
    std::string out = close();
    JsonObject data = typed("message_delta");
    data["delta"] = ending_.describe(finish, has_calls_);
    data["usage"] = usage_of(generation_.answers()[0].counts());
    return out + event(data) + event(typed("message_stop"));
  }

  const MessagesRequest& request_;
  const Generation& generation_;
  Ending ending_;
  Block open_ = Block::kNone;
  int index_ = 0;
  bool started_ = false, has_calls_ = false;  // whole ones
};

http::Task<> stream_messages(http::Exchange& exchange, const MessagesRequest& request,
                             Generation& generation) {
  Answers& answers = generation.answers();
  MessageStream stream(request, generation);
  co_await answers.wait_for_first(kFirstPiecePatience);
  co_await exchange.begin_stream(sse_head());
  while (std::optional<AnswerPiece> piece = co_await answers.next()) {
    const std::string bytes = piece->error
                                  ? event(http::anthropic_error(piece->error->status, piece->error->message))
                                  : stream.events(*piece);
    co_await exchange.write(bytes);
    if (piece->error) break;
  }
  co_await exchange.finish();
}

}  // namespace

http::Task<> messages(Service& service, http::Exchange& exchange) {
  MessagesRequest request = read_messages_request(exchange.request(), service, /*counting=*/false);
  encode_prompt(request.chat, *service.pipeline());
  Generation generation = co_await start_generation(service, exchange, std::move(request.chat.generation));
  if (request.chat.stream) {
    co_await stream_messages(exchange, request, generation);
    co_return;
  }
  ContentBlocks blocks;
  Ending ending(request, generation.pipeline().tokenizer());
  FinishReason finish = FinishReason::kNone;
  co_await read_answers(generation.answers(), [&](AnswerPiece& piece) {
    blocks.append(piece.text);
    ending.append(piece);
    finish = piece.finish;
  });
  JsonObject message = message_head(request, blocks.json(), generation.answers()[0].counts());
  for (const auto& entry : ending.describe(finish, blocks.has_whole_calls()))
    message[entry.key()] = entry.value();
  co_await exchange.respond(json_response(message));
}

http::Response count_tokens(Service& service, const http::Request& http_request) {
  MessagesRequest request = read_messages_request(http_request, service, /*counting=*/true);
  encode_prompt(request.chat, *service.pipeline());
  JsonObject body;
  body["input_tokens"] = request.chat.generation.prompts.at(0).size();
  return json_response(body);
}

namespace {

JsonObject model_card(const std::string& name) {
  JsonObject card = typed("model");
  card["id"] = name;
  card["display_name"] = name;
  card["created_at"] = "1970-01-01T00:00:00Z";
  return card;
}

}  // namespace

http::Response show_anthropic_model(Service& service, const http::Request& request) {
  constexpr std::string_view kFolder = "/anthropic/v1/models/";
  const std::string name = service.checked_model(request.url.path.substr(kFolder.size()));
  service.pipeline();
  return json_response(model_card(name));
}

http::Response list_anthropic_models(Service& service, const http::Request&) {
  service.pipeline();
  JsonArray data;
  for (const std::string& name : service.options().model_names) data.push_back(model_card(name));
  JsonObject body;
  body["first_id"] = service.options().model_names.front();
  body["last_id"] = service.options().model_names.back();
  body["has_more"] = false;
  body["data"] = std::move(data);
  return json_response(body);
}

}  // namespace lmdeploy
