// POST /v1/completions.
#include <limits>

#include "lmdeploy/http/request_id.h"
#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/openai/token_logprobs.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sampling_fields.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();
constexpr size_t kMaxPrompts = 2048;

struct CompletionRequest {
  std::string model;
  GenerationRequest generation;
  std::vector<std::string> echoes;  // what each answer begins with; empty without echo
  bool stream = false, include_usage = false, return_token_ids = false;
  std::optional<int> num_logprobs;
};

Fields own_fields() {
  return {
      {"model", FieldType::kString, "Name of the model; with one model it may be left out"},
      {"prompt", FieldType::kTextOrIds, "Text or token ids that the answer continues, or several of them",
       true},
      {"n", FieldType::kInteger, "Answers to each prompt", false, 1, 128, false, "1"},
  };
}

Fields more_fields() {
  return {
      {"logprobs", FieldType::kInteger, "Alternatives at each token", false, 0, 20},
      {"echo", FieldType::kBool, "Begin the answer with the prompt", false, -kAny, kAny, false, "false"},
      {"best_of", FieldType::kInteger, "Not supported beyond n", false, 1, 128},
      {"suffix", FieldType::kString, "Not supported"},
      {"return_token_ids", FieldType::kBool, "Adds gen_tokens to answers", false, -kAny, kAny, false,
       "false"},
      {"user", FieldType::kString, "Accepted, not used"},
  };
}

std::vector<Prompt> read_prompts(const Json& prompt) {
  if (prompt.is_string()) return {std::string(prompt.get_string())};
  const JsonArray& array = prompt.as_array();
  if (array.empty())
    refuse_field("prompt", "prompt: the array is empty; expected at least one prompt or token id");
  if (array[0].is_number()) return {read_ids(prompt, "prompt")};
  if (array.size() > kMaxPrompts)
    refuse_field("prompt", cat("prompt: found ", array.size(), " prompts; expected at most ", kMaxPrompts));
  std::vector<Prompt> prompts;
  for (const Json& item : array) {
    if (item.is_string())
      prompts.emplace_back(std::string(item.get_string()));
    else
      prompts.emplace_back(read_ids(item, cat("prompt[", prompts.size(), "]")));
  }
  return prompts;
}

void refuse_unsupported(const Body& body, const CompletionRequest& request, bool echo) {
  if (!body.text("suffix").empty())
    refuse_field(
        "suffix",
        "suffix: not supported; put the text around the gap into the prompt as the model expects it");
  if (body.integer("best_of", 1) > body.integer("n", 1))
    refuse_field("best_of", "best_of: not supported beyond n; ask for n answers and choose");
  if (echo && request.num_logprobs)
    refuse_field(
        "echo",
        "echo: log probabilities of the prompt are not supported; use /get_ppl, or leave logprobs out");
}

CompletionRequest read_request(const http::Request& http_request, const Service& service,
                               const Pipeline& pipeline) {
  const Body body(http_request, {});
  CompletionRequest request;
  check_fields(body.object(), {own_fields()[0]});
  request.model = service.checked_model(body);
  check_fields(body.object(), completion_fields());
  SamplingDefaults defaults;
  defaults.max_tokens = 16;
  request.generation.gen_config = read_generation_config(body, defaults);
  request.generation.gen_config.n = static_cast<int>(body.integer("n", 1));
  request.generation.session_id = body.integer("session_id", -1);
  request.generation.user = body.text("user_id");
  request.stream = body.flag("stream", false);
  request.include_usage = wants_usage(body);
  if (const auto logprobs = body.integer("logprobs")) request.num_logprobs = static_cast<int>(*logprobs);
  request.generation.gen_config.logprobs = request.num_logprobs;
  request.return_token_ids = body.flag("return_token_ids", false);
  const bool echo = body.flag("echo", false);
  refuse_unsupported(body, request, echo);

  RunOptions raw;
  raw.do_preprocess = false;
  for (const Prompt& prompt : read_prompts(*body.find("prompt"))) {
    PromptPreview preview = pipeline.preview(prompt, raw);
    if (echo) request.echoes.push_back(std::move(preview.text));
    request.generation.prompts.push_back(std::move(preview.token_ids));
  }
  return request;
}

class CompletionWriter {
 public:
  CompletionWriter(const CompletionRequest& request, Generation& generation, size_t per_prompt)
      : request_(request),
        generation_(generation),
        tokenizer_(generation.pipeline().tokenizer()),
        per_prompt_(per_prompt),
        id_("cmpl-" + http::random_name(24)),
        created_(unix_time()),
        offsets_(generation.answers().size()),
        echo_sent_(generation.answers().size(), request.echoes.empty()) {}

  JsonObject head() const {
    return {{"id", id_}, {"object", "text_completion"}, {"created", created_}, {"model", request_.model}};
  }
  JsonObject usage() const { return generation_.usage(per_prompt_); }

  /// The text of a piece, after the prompt where that is asked for.
  std::string text(const AnswerPiece& piece) {
    if (echo_sent_[piece.index]) return piece.text.content;
    echo_sent_[piece.index] = true;
    return request_.echoes[piece.index / per_prompt_] + piece.text.content;
  }

  Json logprobs(const AnswerPiece& piece) {
    if (!request_.num_logprobs || tokenizer_ == nullptr) return nullptr;
    return completion_logprobs(piece, *tokenizer_, *request_.num_logprobs, offsets_[piece.index]);
  }

  std::string event(const AnswerPiece& piece) {
    const bool last = piece.finish != FinishReason::kNone;
    JsonObject choice{{"index", piece.index},
                      {"text", text(piece)},
                      {"logprobs", piece.token_ids.empty() ? Json(nullptr) : logprobs(piece)}};
    if (choice["text"].as_string().empty() && piece.token_ids.empty() && !last) return {};
    if (request_.return_token_ids) choice["gen_tokens"] = ids_json(piece.token_ids);
    choice["finish_reason"] = last ? Json(finish_name(piece.finish, false)) : Json(nullptr);
    JsonObject chunk = head();
    chunk["choices"] = JsonArray{std::move(choice)};
    if (request_.include_usage) chunk["usage"] = nullptr;
    return sse_event(chunk);
  }

  std::string usage_event() const {
    JsonObject chunk = head();
    chunk["choices"] = JsonArray();
    chunk["usage"] = usage();
    return sse_event(chunk);
  }

 private:
  const CompletionRequest& request_;
  const Generation& generation_;
  const std::shared_ptr<const Tokenizer> tokenizer_;
  const size_t per_prompt_;
  const std::string id_;
  const int64_t created_;
  std::vector<int64_t> offsets_;
  std::vector<bool> echo_sent_;
};

/// Appends each list of `piece` to that of `whole`.
void append_lists(Json& whole, const Json& piece) {
  if (!piece.is_object()) return;
  if (!whole.is_object()) {
    whole = piece;
    return;
  }
  for (auto& entry : whole.get_object())
    for (const Json& item : piece.get_object().at(entry.key()).as_array())
      entry.value().as_array().push_back(item);
}

/// One answer as it grows.
struct WholeChoice {
  std::string text;
  Json logprobs;
  std::vector<int> ids;
  FinishReason finish = FinishReason::kNone;
};

void append(WholeChoice& choice, const AnswerPiece& piece, CompletionWriter& writer) {
  choice.text += writer.text(piece);
  append_lists(choice.logprobs, writer.logprobs(piece));
  choice.ids.insert(choice.ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  choice.finish = piece.finish;
}

Json whole_answer(const CompletionRequest& request, const std::vector<WholeChoice>& choices,
                  const CompletionWriter& writer) {
  JsonArray list;
  for (size_t i = 0; i < choices.size(); ++i) {
    JsonObject choice{{"index", i},
                      {"text", choices[i].text},
                      {"logprobs", choices[i].logprobs},
                      {"finish_reason", finish_name(choices[i].finish, false)}};
    if (request.return_token_ids) choice["gen_tokens"] = ids_json(choices[i].ids);
    list.push_back(std::move(choice));
  }
  JsonObject body = writer.head();
  body["choices"] = std::move(list);
  body["usage"] = writer.usage();
  return body;
}

}  // namespace

const Fields& completion_fields() {
  static const Fields fields = own_fields() + sampling_fields() + stream_fields() + more_fields();
  return fields;
}

http::Task<> completions(Service& service, http::Exchange& exchange) {
  CompletionRequest request = read_request(exchange.request(), service, *service.pipeline());
  const auto per_prompt = static_cast<size_t>(request.generation.gen_config.n);
  Generation generation = co_await start_generation(service, exchange, std::move(request.generation));
  CompletionWriter writer(request, generation, per_prompt);
  if (request.stream) {
    co_await stream_answers(
        exchange, generation.answers(), [&](AnswerPiece& piece) { return writer.event(piece); },
        [&] { return request.include_usage ? writer.usage_event() : std::string(); });
    co_return;
  }
  std::vector<WholeChoice> choices(generation.answers().size());
  co_await read_answers(generation.answers(),
                        [&](AnswerPiece& piece) { append(choices[piece.index], piece, writer); });
  co_await exchange.respond(json_response(whole_answer(request, choices, writer)));
}

}  // namespace lmdeploy
