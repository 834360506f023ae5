// Pipeline::get_ppl and get_reward_score: how well the model predicts given ids, and how it likes them.
#include "lmdeploy/pipeline/scores.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/pipeline_impl.h"

namespace lmdeploy {
namespace {

std::string_view name_of(ScoreKind kind) {
  return kind == ScoreKind::kPerplexity ? "get_ppl" : "get_reward_score";
}

void check_model(ScoreKind kind, const DecoderSpec& spec) {
  const bool wants_reward = kind == ScoreKind::kReward;
  if (spec.gives_score == wants_reward) return;
  throw Error(ErrorCode::kUnsupported,
              cat(name_of(kind), " needs a ",
                  wants_reward ? "reward model (InternLM2ForRewardModel, Qwen2ForRewardModel)"
                               : "model that generates text",
                  "; this is ", spec.architecture, ", which gives ",
                  wants_reward ? "no scores" : "scores: use get_reward_score"));
}

RequestOutput wait_for_last(RequestHandle& handle) {
  RequestOutput whole;
  while (whole.finish == FinishReason::kNone)
    if (std::optional<RequestOutput> output = handle.next(std::chrono::seconds{1}))
      whole = std::move(*output);
  return whole;
}

std::vector<double> scores(ScoreKind kind, Runtime& runtime, const std::vector<std::vector<int>>& input_ids) {
  check_scored_ids(kind, input_ids, runtime.model->spec());
  std::vector<std::unique_ptr<RequestHandle>> handles;
  for (const std::vector<int>& ids : input_ids)
    handles.push_back(runtime.engine->submit(score_request(kind, ids)));
  std::vector<double> scores;
  for (size_t i = 0; i < handles.size(); ++i) scores.push_back(score_of(kind, wait_for_last(*handles[i]), i));
  return scores;
}

}  // namespace

void check_scored_ids(ScoreKind kind, const std::vector<std::vector<int>>& input_ids,
                      const DecoderSpec& spec) {
  check_model(kind, spec);
  const size_t least = kind == ScoreKind::kPerplexity ? 2 : 1;
  for (size_t i = 0; i < input_ids.size(); ++i) {
    const std::vector<int>& ids = input_ids[i];
    if (ids.size() < least)
      throw Error(ErrorCode::kInvalidArgument, cat(name_of(kind), ": input_ids[", i, "] has ", ids.size(),
                                                   " ids; expected at least ", least));
    for (const int id : ids)
      if (id < 0 || id >= spec.vocab_size)
        throw Error(ErrorCode::kInvalidArgument,
                    cat(name_of(kind), ": input_ids[", i, "]: id ", id,
                        " is outside the model's vocabulary of ", spec.vocab_size));
  }
}

Request score_request(ScoreKind kind, std::vector<int> ids) {
  Request request;
  request.input_ids = std::move(ids);
  request.max_new_tokens = 0;
  request.score_prompt = kind == ScoreKind::kPerplexity;
  if (kind == ScoreKind::kReward) request.logits = OutputRows::kGeneration;
  return request;
}

double score_of(ScoreKind kind, const RequestOutput& last, size_t index) {
  if (last.finish == FinishReason::kError)
    throw Error(last.error_code, cat(name_of(kind), ": input_ids[", index, "]: ", last.error_message));
  if (last.finish == FinishReason::kAbort)
    throw Error(ErrorCode::kClosed,
                cat(name_of(kind), ": input_ids[", index, "]: the pipeline was closed meanwhile"));
  if (kind == ScoreKind::kReward) return static_cast<double>(last.logits.back());
  return last.prompt_nll / static_cast<double>(last.prompt_tokens - 1);
}

std::vector<double> Pipeline::get_ppl(const std::vector<std::vector<int>>& input_ids) {
  return scores(ScoreKind::kPerplexity, *impl_->runtime(), input_ids);
}

std::vector<double> Pipeline::get_reward_score(const std::vector<std::vector<int>>& input_ids) {
  return scores(ScoreKind::kReward, *impl_->runtime(), input_ids);
}

}  // namespace lmdeploy
