// POST /v1/completions.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "lmdeploy/http/request_id.h"
#include "lmdeploy/pipeline/infilling.h"
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
  std::vector<std::string> echoes;         // what each answer begins with; empty without echo
  std::vector<std::vector<int>> echo_ids;  // the same as ids; empty unless their log probabilities are wanted
  size_t num_choices = 1;                  // of each prompt: the best of generation.gen_config.n answers
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
      {"best_of", FieldType::kInteger,
       "Generate that many answers and give the n with the best mean log probability of a token", false, 1,
       128},
      {"suffix", FieldType::kString,
       "The text after the answer; for models that have learnt to fill such gaps"},
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

/// max_tokens 0 only reads the prompt, for its log probabilities.
Fields with_zero_tokens(Fields fields) {
  for (Field& field : fields)
    if (field.name == std::string_view("max_tokens") ||
        field.name == std::string_view("max_completion_tokens"))
      field.min = 0;
  return fields;
}

void read_choices(const Body& body, CompletionRequest& request) {
  const int64_t n = body.integer("n", 1), best_of = body.integer("best_of", n);
  if (best_of < n)
    refuse_field("best_of", cat("best_of: found ", best_of, "; expected at least n, which is ", n));
  if (best_of > n && request.stream)
    refuse_field("best_of", cat("best_of: found ", best_of, " and n ", n,
                                ": which answers are the best is not known before all have ended; leave "
                                "best_of or stream out"));
  request.num_choices = static_cast<size_t>(n);
  GenerationConfig& gen_config = request.generation.gen_config;
  gen_config.n = static_cast<int>(best_of);
  if (best_of > n && !gen_config.logprobs) gen_config.logprobs = 0;
}

Prompt with_suffix(const Prompt& prompt, const std::string& suffix, const Pipeline& pipeline,
                   GenerationConfig& gen_config) {
  const auto tokenizer = pipeline.tokenizer();
  const InfillingForm* form = tokenizer == nullptr ? nullptr : infilling_form(*tokenizer);
  if (form == nullptr)
    refuse_field("suffix",
                 "suffix: the model has no marks for it in its vocabulary; use a code model that has learnt "
                 "infilling, or leave suffix out");
  const auto* text = std::get_if<std::string>(&prompt);
  if (text == nullptr) refuse_field("suffix", "suffix: needs prompts that are texts, not token ids");
  const std::vector<int> ends = infilling_stop_ids(*form, *tokenizer);
  gen_config.stop_token_ids.insert(gen_config.stop_token_ids.end(), ends.begin(), ends.end());
  return infilling_prompt(*form, *text, suffix);
}

void read_prompts(const Body& body, const Pipeline& pipeline, CompletionRequest& request) {
  RunOptions raw;
  raw.do_preprocess = false;
  const bool echo = body.flag("echo", false);
  const std::string suffix = body.text("suffix");
  GenerationConfig& gen_config = request.generation.gen_config;
  if (echo && !suffix.empty()) refuse_field("echo", "echo: cannot be combined with suffix; leave one out");
  if (echo) gen_config.prompt_logprobs = request.num_logprobs;
  const std::vector<Prompt> prompts = read_prompts(*body.find("prompt"));
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Prompt whole = suffix.empty() ? prompts[i] : with_suffix(prompts[i], suffix, pipeline, gen_config);
    const std::string field = prompts.size() == 1 ? "prompt" : cat("prompt[", i, "]");
    PromptPreview preview = preview_prompt(pipeline, whole, raw, field);
    if (echo) request.echoes.push_back(std::move(preview.text));
    if (gen_config.prompt_logprobs) request.echo_ids.push_back(preview.token_ids);
    request.generation.prompts.push_back(std::move(preview.token_ids));
  }
}

CompletionRequest read_request(const http::Request& http_request, const Service& service,
                               const Pipeline& pipeline) {
  const Body body(http_request, {});
  CompletionRequest request;
  request.generation.prompt_field = "prompt";
  check_fields(body.object(), {own_fields()[0]});
  request.model = service.checked_model(body);
  check_fields(body.object(), completion_fields());
  SamplingDefaults defaults;
  defaults.max_tokens = 16;
  request.generation.gen_config = read_generation_config(body, defaults);
  request.generation.session_id = body.integer("session_id", -1);
  request.generation.user = body.text("user_id");
  request.stream = body.flag("stream", false);
  request.include_usage = wants_usage(body);
  if (const auto logprobs = body.integer("logprobs")) request.num_logprobs = static_cast<int>(*logprobs);
  request.generation.gen_config.logprobs = request.num_logprobs;
  request.return_token_ids = body.flag("return_token_ids", false);
  read_choices(body, request);
  read_prompts(body, pipeline, request);
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
        echo_sent_(generation.answers().size(), request.echoes.empty()) {
    if (!request.num_logprobs || tokenizer_ == nullptr) return;
    for (size_t i = 0; i < generation.answers().size(); ++i)
      logprobs_.push_back({CompletionLogprobs(*tokenizer_, *request.num_logprobs), 0});
  }

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

  /// Takes the piece's log probabilities, after those of the prompt where it is echoed.
  void read_logprobs(const AnswerPiece& piece) {
    if (logprobs_.empty()) return;
    auto& [lists, num_echoed] = logprobs_[piece.index];
    if (!request_.echo_ids.empty()) {
      const std::vector<int>& ids = request_.echo_ids[piece.index / per_prompt_];
      if (num_echoed == 0 && !ids.empty()) lists.add_unscored(ids[num_echoed++]);
      for (const TokenLogprobs& at : piece.prompt_logprobs) lists.add(ids[num_echoed++], at.chosen, at.top);
    }
    lists.add(piece);
  }
  /// Those that have not been given yet; null where none are wanted.
  Json take_logprobs(size_t answer) {
    return logprobs_.empty() ? Json(nullptr) : logprobs_[answer].lists.take();
  }

  std::string event(const AnswerPiece& piece) {
    const bool last = piece.finish != FinishReason::kNone;
    read_logprobs(piece);
    const bool has_logprobs = !logprobs_.empty() && !logprobs_[piece.index].lists.empty();
    JsonObject choice{{"index", piece.index},
                      {"text", text(piece)},
                      {"logprobs", has_logprobs ? take_logprobs(piece.index) : Json(nullptr)}};
    if (choice["text"].as_string().empty() && piece.token_ids.empty() && !has_logprobs && !last) return {};
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
  struct AnswerLogprobs {
    CompletionLogprobs lists;
    size_t num_echoed = 0;  // tokens of the prompt in the lists so far
  };
  std::vector<AnswerLogprobs> logprobs_;  // of each answer; empty when not asked for
  std::vector<bool> echo_sent_;
};

/// One answer as it grows.
struct WholeChoice {
  std::string text;
  std::vector<int> ids;
  double sum_logprob = 0;
  FinishReason finish = FinishReason::kNone;

  double mean_logprob() const { return ids.empty() ? 0 : sum_logprob / static_cast<double>(ids.size()); }
};

void append(WholeChoice& choice, const AnswerPiece& piece, CompletionWriter& writer) {
  choice.text += writer.text(piece);
  writer.read_logprobs(piece);
  choice.ids.insert(choice.ids.end(), piece.token_ids.begin(), piece.token_ids.end());
  for (size_t i = 0; i < piece.logprobs.size(); ++i)
    choice.sum_logprob += static_cast<double>(chosen_logprob(piece, i));
  choice.finish = piece.finish;
}

/// The answers to give: of each prompt's `per_prompt` the `kept` best, the best first.
std::vector<size_t> best_choices(const std::vector<WholeChoice>& choices, size_t per_prompt, size_t kept) {
  std::vector<size_t> best;
  for (size_t begin = 0; begin < choices.size(); begin += per_prompt) {
    std::vector<size_t> ranked(per_prompt);
    std::iota(ranked.begin(), ranked.end(), begin);
    if (kept < per_prompt)
      std::ranges::stable_sort(ranked, std::greater<>(), [&](size_t i) { return choices[i].mean_logprob(); });
    best.insert(best.end(), ranked.begin(), ranked.begin() + static_cast<std::ptrdiff_t>(kept));
  }
  return best;
}

Json whole_answer(const CompletionRequest& request, const std::vector<WholeChoice>& choices,
                  size_t per_prompt, CompletionWriter& writer) {
  JsonArray list;
  for (const size_t i : best_choices(choices, per_prompt, request.num_choices)) {
    JsonObject choice{{"index", list.size()},
                      {"text", choices[i].text},
                      {"logprobs", writer.take_logprobs(i)},
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
  static const Fields fields =
      own_fields() + with_zero_tokens(sampling_fields()) + stream_fields() + more_fields();
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
  co_await exchange.respond(json_response(whole_answer(request, choices, per_prompt, writer)));
}

}  // namespace lmdeploy
