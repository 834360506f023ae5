// POST /v1/chat/interactive: conversations that the server keeps (LMDeploy up to 0.9).
#include <exception>
#include <limits>

#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sampling_fields.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

struct InteractiveRequest {
  ChatSession opening;  // system and history, of a list of messages
  std::string prompt;
  bool is_list = false;
  GenerationConfig gen_config;
  int64_t session_id = -1;
  std::string user;  // whose quota the turn counts on
  bool keep = false, stream = false, cancel = false;
  bool end_only = false;  // an empty prompt for no tokens: the session ends
};

std::string text_of(const JsonObject& message, size_t index, const char* field) {
  const Json* value = message.if_contains(field);
  if (value == nullptr || !value->is_string())
    refuse_field("prompt", cat("prompt[", index, "].", field, ": expected a string"));
  return std::string(value->get_string());
}

/// [system,] user, assistant, ..., user
void read_messages(const JsonArray& messages, InteractiveRequest& request) {
  request.is_list = true;
  std::string user;
  bool user_open = false;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role = text_of(messages[i].as_object(), i, "role"),
                      content = text_of(messages[i].as_object(), i, "content");
    const bool fits = role == "system" ? i == 0
                      : role == "user" ? !user_open
                                       : role == "assistant" && user_open;
    if (!fits)
      refuse_field("prompt", cat("prompt[", i, "].role: found ", role,
                                 "; expected an optional system message, then user and assistant in turn"));
    if (role == "system") request.opening.system = content;
    if (role == "user") user = content;
    if (role == "assistant") request.opening.history.emplace_back(user, content);
    user_open = role == "user";
  }
  if (!user_open) refuse_field("prompt", "prompt: the last message must be the user's");
  request.prompt = user;
}

InteractiveRequest read_request(const http::Request& http_request) {
  const Body body(http_request, interactive_fields());
  InteractiveRequest request;
  request.session_id = body.integer("session_id", -1);
  request.user = body.text("user_id");
  request.cancel = body.flag("cancel", false);
  if (request.cancel && request.session_id < 0)
    refuse_field("session_id", "please set a session_id to cancel a request");
  if (body.has("image_url"))
    refuse_field("image_url", "image_url: this model takes no images (VL models only)");
  if (body.has("adapter_name"))
    refuse_field("adapter_name", "adapter_name: adapters are not supported; merge it into the weights");
  SamplingDefaults defaults;
  defaults.temperature = 0.8;
  defaults.top_p = 0.8;
  request.gen_config = read_generation_config(body, defaults);
  const auto length = body.integer("request_output_len");
  request.gen_config.max_new_tokens = length;
  request.keep = body.flag("interactive_mode", false);
  request.stream = body.flag("stream", false);
  const Json& prompt = *body.find("prompt");
  if (prompt.is_array()) {
    read_messages(prompt.get_array(), request);
  } else {
    request.prompt = std::string(prompt.get_string());
  }
  request.end_only = request.prompt.empty() && length == 0 && !request.keep;
  if (length == 0 && !request.end_only)
    refuse_field(
        "request_output_len",
        "request_output_len: 0 only ends a session: with an empty prompt and interactive_mode false");
  return request;
}

/// One answer, or one line of a stream.
Json part(const std::string& text, const AnswerCounts& counts, int64_t history_tokens, FinishReason finish) {
  JsonObject part;
  part["text"] = text;
  part["tokens"] = counts.generated_tokens;
  part["input_tokens"] = counts.prompt_tokens;
  part["history_tokens"] = history_tokens;
  part["finish_reason"] = finish == FinishReason::kNone ? Json(nullptr) : Json(to_string(finish));
  return part;
}

/// What keeps a turn running, given back from the last to the first.
struct RunningTurn {
  std::shared_ptr<Pipeline> pipeline;
  InteractiveSessions::Lease lease;
  std::unique_ptr<Answers> answers;
  int64_t history_tokens = 0;
  bool failed = false;  // after the stream had begun
};

/// That of an error gives its words too.
std::string stream_line(const AnswerPiece& piece, const RunningTurn& turn) {
  Json line = part(piece.text.content, (*turn.answers)[0].counts(), turn.history_tokens, piece.finish);
  if (piece.error) line.as_object()["error"] = error_object(*piece.error);
  return to_json_text(line) + "\n";
}

http::Task<> send_stream(http::Exchange& exchange, RunningTurn& turn) {
  co_await turn.answers->wait_for_first(kFirstPiecePatience);
  http::Response head;
  head.content_type = "text/event-stream; charset=utf-8";
  co_await exchange.begin_stream(std::move(head));
  while (std::optional<AnswerPiece> piece = co_await turn.answers->next()) {
    const std::string line = stream_line(*piece, turn);
    turn.failed = turn.failed || piece->error;
    co_await exchange.write(line);
  }
  co_await exchange.finish();
}

http::Task<> send_whole(http::Exchange& exchange, RunningTurn& turn) {
  std::string text;
  FinishReason finish = FinishReason::kNone;
  co_await read_answers(*turn.answers, [&](AnswerPiece& piece) {
    text += piece.text.content;
    finish = piece.finish;
  });
  co_await exchange.respond(
      json_response(part(text, (*turn.answers)[0].counts(), turn.history_tokens, finish)));
}

/// A prompt that does not fit is an ordinary end of a conversation here.
std::optional<Json> full_answer(const ApiErrorInfo& error, int64_t history_tokens) {
  if (error.code != "context_length_exceeded") return std::nullopt;
  return part("", {}, history_tokens, FinishReason::kLength);
}

http::Task<> run_turn(Service& service, http::Exchange& exchange, InteractiveRequest& request) {
  Admission::Place place = co_await service.admission().enter(exchange, request.user);
  std::shared_ptr<Pipeline> pipeline = service.pipeline();
  const int64_t id = request.session_id >= 0 ? request.session_id : service.next_session_id();
  InteractiveSessions::Lease lease = co_await service.sessions().take(exchange, id);
  ChatSession& session = lease.session();
  if (request.is_list) {
    if (!session.history.empty())
      refuse_field("prompt", "prompt: the session has a history already; send the new prompt as a string");
    session.system = request.opening.system;
    session.history = request.opening.history;
  }
  auto answers = std::make_unique<Answers>(exchange);
  RequestRegistry::Entry entry = service.requests().add(id, answers->signal());
  const int64_t history_tokens = session.step;
  answers->add(Answer(pipeline->chat(session, request.prompt, request.gen_config), std::nullopt,
                      /*one_call=*/false, RequestRecord(service.metrics(), exchange.request().arrival)));
  answers->set_abort(entry.abort_switch());
  const RunningRequest running(std::move(place), std::move(entry));
  RunningTurn turn{std::move(pipeline), std::move(lease), std::move(answers), history_tokens};
  turn.answers->set_on_end([&](bool failed) {
    running.give_back();
    if (request.keep && !failed) turn.lease.give_back();
  });
  std::optional<ApiErrorInfo> failure;
  std::exception_ptr gone;
  try {
    if (request.stream)
      co_await send_stream(exchange, turn);
    else
      co_await send_whole(exchange, turn);
  } catch (const ApiError& error) {
    failure = error.info();
  } catch (const http::ClientGone&) {
    gone = std::current_exception();
  }
  if (!request.keep || failure || turn.failed) {
    turn.pipeline->end_session(turn.lease.session());
    service.sessions().forget(id);
  }
  if (gone) std::rethrow_exception(gone);
  if (!failure) co_return;
  const std::optional<Json> full = full_answer(*failure, history_tokens);
  if (!full || exchange.answered()) throw ApiError(*failure);
  co_await exchange.respond(json_response(*full));
}

void end_session(Service& service, InteractiveSessions::Lease& lease, int64_t id) {
  service.pipeline()->end_session(lease.session());
  service.sessions().forget(id);
}

}  // namespace

const Fields& interactive_fields() {
  static const Fields fields =
      Fields{{"prompt", FieldType::kTextOrMessages, "The next turn; a list of messages opens a conversation",
              true},
             {"image_url", FieldType::kStringOrArray, "Not supported"},
             {"session_id", FieldType::kInteger, "The conversation; -1: a new one", false, -1, kAny, false,
              "-1"},
             {"interactive_mode", FieldType::kBool, "Keep the conversation after this answer", false, -kAny,
              kAny, false, "false"},
             {"stream", FieldType::kBool, "One JSON object a line", false, -kAny, kAny, false, "false"},
             {"request_output_len", FieldType::kInteger, "Most tokens of the answer; null: as many as fit",
              false, 0},
             {"cancel", FieldType::kBool, "End the running answer of session_id", false, -kAny, kAny, false,
              "false"},
             {"adapter_name", FieldType::kString, "Not supported"}} +
      sampling_fields();
  return fields;
}

http::Task<> chat_interactive(Service& service, http::Exchange& exchange) {
  InteractiveRequest request = read_request(exchange.request());
  if (request.cancel) {
    service.requests().abort(request.session_id);
    co_await exchange.respond(json_response(part("", {}, 0, FinishReason::kStop)));
  } else if (request.end_only) {
    service.requests().abort(request.session_id);
    InteractiveSessions::Lease lease = co_await service.sessions().take(exchange, request.session_id);
    end_session(service, lease, request.session_id);
    co_await exchange.respond(json_response(part("", {}, 0, FinishReason::kStop)));
  } else {
    co_await run_turn(service, exchange, request);
  }
}

}  // namespace lmdeploy
