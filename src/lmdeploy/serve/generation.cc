#include "lmdeploy/serve/generation.h"

#include <algorithm>
#include <ctime>

#include "lmdeploy/core/log.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

/// The beginning of each prompt, where --max-log-len asks for it: nothing of them is logged otherwise.
void log_prompts(const GenerationRequest& request, const Pipeline& pipeline, const http::Request& from,
                 int64_t max_len) {
  const auto tokenizer = pipeline.tokenizer();
  if (max_len == 0 || tokenizer == nullptr || !log_enabled(LogLevel::kInfo)) return;
  for (const std::vector<int>& prompt : request.prompts) {
    std::string text = tokenizer->decode(prompt, /*skip_special_tokens=*/false);
    text.resize(std::min(text.size(), static_cast<size_t>(max_len)));
    LMD_LOG(kInfo, from.id, " prompt of ", prompt.size(), " tokens: ", to_json_text(Json(repair_utf8(text))));
  }
}

void check_num_answers(const GenerationRequest& request) {
  const int64_t found = request.num_answers();
  if (found > kMaxAnswers)
    refuse_field(
        request.prompt_field,
        cat(request.prompt_field, ": ", request.prompts.size(), " prompts with ", request.gen_config.n,
            " answers each are ", found, " sequences; expected at most ", kMaxAnswers, " in one request"));
}

/// Of the exception that is being handled: a schema at fault gets the client's name.
[[noreturn]] void throw_with_names(const GenerationRequest& request) {
  ApiErrorInfo info = current_api_error();
  for (const auto& [path, name] : request.schema_names)
    if (info.message.starts_with(path)) {
      info.message.replace(0, path.size(), name);
      info.param = info.message.substr(0, info.message.find_first_of(": "));
      break;
    }
  throw ApiError(std::move(info));
}

}  // namespace

PromptPreview preview_prompt(const Pipeline& pipeline, const Prompt& prompt, const RunOptions& options,
                             const std::string& field) {
  try {
    return pipeline.preview(prompt, options);
  } catch (const Error& error) {
    ApiErrorInfo info = to_api_error(error.code(), error.what());
    constexpr std::string_view kPrompt = "prompt";
    if (info.param == kPrompt) {
      info.message.replace(0, kPrompt.size(), field);
      info.param = field;
    }
    throw ApiError(std::move(info));
  }
}

JsonObject Generation::usage(size_t answers_per_prompt) const {
  int64_t prompt = 0, cached = 0, generated = 0;
  for (size_t i = 0; i < answers_->size(); ++i) {
    const AnswerCounts& counts = (*answers_)[i].counts();
    generated += counts.generated_tokens;
    if (i % answers_per_prompt != 0) continue;
    prompt += counts.prompt_tokens;
    cached += counts.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", JsonObject{{"cached_tokens", cached}}}};
}

http::Task<Generation> start_generation(Service& service, http::Exchange& exchange,
                                        GenerationRequest request) {
  check_num_answers(request);
  Admission::Place place = co_await service.admission().enter(exchange, request.user, request.num_answers());
  std::shared_ptr<Pipeline> pipeline = service.pipeline();
  log_prompts(request, *pipeline, exchange.request(), service.options().max_log_len);
  auto answers = std::make_unique<Answers>(exchange, request.prompt_field);
  RequestRegistry::Entry entry = service.requests().add(request.session_id, answers->signal());
  const auto submit_all = [&] {
    for (std::vector<int>& prompt : request.prompts)
      for (int choice = 0; choice < request.gen_config.n; ++choice) {
        std::optional<OutputParser> parser;
        if (request.parser) parser.emplace(*request.parser);
        answers->add(Answer(pipeline->submit(prompt, request.gen_config.choice(choice)), std::move(parser),
                            request.one_call, RequestRecord(service.metrics(), exchange.request().arrival)));
      }
  };
  const auto submit = [&] {
    try {
      submit_all();
    } catch (const Error&) {
      throw_with_names(request);
    }
  };
  // A large schema takes long to compile.
  if (request.gen_config.response_format.kind == ResponseFormat::Kind::kText)
    submit();
  else
    co_await exchange.offload(submit);
  answers->set_abort(entry.abort_switch());
  const RunningRequest running(std::move(place), std::move(entry));
  answers->set_on_end([running](bool) { running.give_back(); });
  co_return Generation(running, std::move(pipeline), std::move(answers));
}

http::Task<> read_answers(Answers& answers, std::function<void(AnswerPiece&)> take) {
  while (std::optional<AnswerPiece> piece = co_await answers.next()) {
    if (piece->error) throw ApiError(*piece->error);
    take(*piece);
  }
}

http::Task<> stream_answers(http::Exchange& exchange, Answers& answers,
                            std::function<std::string(AnswerPiece&)> event,
                            std::function<std::string()> last) {
  co_await answers.wait_for_first(kFirstPiecePatience);
  co_await exchange.begin_stream(sse_head());
  bool failed = false;
  while (!failed) {
    std::optional<AnswerPiece> piece = co_await answers.next();
    if (!piece) break;
    failed = piece->error.has_value();
    const std::string bytes = failed ? sse_error(*piece->error) : event(*piece);
    co_await exchange.write(bytes);
  }
  const std::string end = (failed ? "" : last()) + kDoneEvent;
  co_await exchange.write(end);
  co_await exchange.finish();
}

int64_t unix_time() { return static_cast<int64_t>(std::time(nullptr)); }

std::string finish_name(FinishReason reason, bool has_tool_calls) {
  if (reason == FinishReason::kStop && has_tool_calls) return "tool_calls";
  return std::string(to_string(reason));
}

}  // namespace lmdeploy
