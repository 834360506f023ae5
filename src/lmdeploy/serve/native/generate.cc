// POST /generate: token ids or raw text in, text and ids out.
#include <limits>

#include "lmdeploy/serve/api_error.h"
#include "lmdeploy/serve/generation.h"
#include "lmdeploy/serve/json_answer.h"
#include "lmdeploy/serve/routes.h"
#include "lmdeploy/serve/sampling_fields.h"
#include "lmdeploy/serve/sse.h"

namespace lmdeploy {
namespace {

constexpr double kAny = std::numeric_limits<double>::infinity();

struct GenerateRequest {
  GenerationRequest generation;
  bool stream = false, logprobs = false;
};

GenerateRequest read_request(const http::Request& http_request, const Pipeline& pipeline) {
  const Body body(http_request, generate_fields());
  GenerateRequest request;
  SamplingDefaults defaults;
  defaults.temperature = 1;
  defaults.top_k = 0;
  defaults.max_tokens = 128;
  request.generation.gen_config = read_generation_config(body, defaults);
  request.generation.session_id = body.integer("session_id", -1);
  request.generation.user = body.text("user_id");
  request.stream = body.flag("stream", false);
  request.logprobs = body.flag("return_logprob", false);
  if (request.logprobs) request.generation.gen_config.logprobs = 0;
  if (body.flag("return_routed_experts", false))
    refuse_field("return_routed_experts", "return_routed_experts: not supported");
  if (body.has("image_data")) refuse_field("image_data", "image_data: this model takes no images");
  if (body.has("prompt") == body.has("input_ids"))
    refuse_field("prompt", "prompt, input_ids: expected exactly one of the two");
  RunOptions raw;
  raw.do_preprocess = false;
  const Prompt prompt = body.has("prompt") ? Prompt(body.text("prompt")) : Prompt(body.ids("input_ids"));
  const std::string field = body.has("prompt") ? "prompt" : "input_ids";
  request.generation.prompts.push_back(preview_prompt(pipeline, prompt, raw, field).token_ids);
  request.generation.prompt_field = field;
  return request;
}

/// What was generated up to now, or since the last piece.
struct Piece {
  std::string text;
  std::vector<int> ids;
  JsonArray logprobs;
  FinishReason finish = FinishReason::kNone;

  void append(const AnswerPiece& piece) {
    text += piece.text.content;
    for (size_t i = 0; i < piece.token_ids.size(); ++i) {
      ids.push_back(piece.token_ids[i]);
      if (i >= piece.logprobs.size()) continue;
      for (const auto& [id, logprob] : piece.logprobs[i])
        if (id == piece.token_ids[i]) logprobs.push_back(JsonArray{logprob, id});
    }
    finish = piece.finish;
  }

  JsonObject json(const AnswerCounts& counts, bool with_logprobs) const {
    JsonObject meta{{"prompt_tokens", counts.prompt_tokens},
                    {"completion_tokens", counts.generated_tokens},
                    {"cached_tokens", counts.cached_tokens},
                    {"finish_reason", finish == FinishReason::kNone
                                          ? Json(nullptr)
                                          : Json(JsonObject{{"type", finish_name(finish, false)}})}};
    meta["output_token_logprobs"] = with_logprobs ? Json(logprobs) : Json(nullptr);
    return {{"text", text}, {"output_ids", ids_json(ids)}, {"meta_info", std::move(meta)}};
  }
};

}  // namespace

const Fields& generate_fields() {
  static const Fields fields =
      Fields{{"prompt", FieldType::kString, "Text that the answer continues"},
             {"input_ids", FieldType::kIntegerArray, "The same as token ids"},
             {"image_data", FieldType::kAny, "Not supported"}} +
      sampling_fields() +
      Fields{
          {"stream", FieldType::kBool, "Send the answer in pieces", false, -kAny, kAny, false, "false"},
          {"return_logprob", FieldType::kBool, "Log probability of each token", false, -kAny, kAny, false,
           "false"},
          {"return_routed_experts", FieldType::kBool, "Not supported", false, -kAny, kAny, false, "false"}};
  return fields;
}

http::Task<> generate(Service& service, http::Exchange& exchange) {
  GenerateRequest request = read_request(exchange.request(), *service.pipeline());
  Generation generation = co_await start_generation(service, exchange, std::move(request.generation));
  Answers& answers = generation.answers();
  if (request.stream) {
    const auto event = [&](AnswerPiece& piece) {
      Piece part;
      part.append(piece);
      return sse_event(part.json(answers[0].counts(), request.logprobs));
    };
    co_await stream_answers(exchange, answers, event, [] { return std::string(); });
    co_return;
  }
  Piece whole;
  co_await read_answers(answers, [&](AnswerPiece& piece) { whole.append(piece); });
  co_await exchange.respond(json_response(whole.json(answers[0].counts(), request.logprobs)));
}

}  // namespace lmdeploy
