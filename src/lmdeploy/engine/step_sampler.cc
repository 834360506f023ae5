// Deals the rows out, and turns a device's outcomes into results.
#include "lmdeploy/engine/step_sampler.h"

#include "lmdeploy/core/random.h"

namespace lmdeploy {

void StepSampler::start(StepLogits& logits, std::span<const SampleInput> inputs) {
  inputs_ = inputs;
  if (results_.size() < inputs.size()) results_.resize(inputs.size());
  host_inputs_.clear(), on_host_.clear(), on_device_.clear(), draws_.clear(), edits_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (kernels_.draws_tokens() && add_draw(inputs[i], logits.device().cols())) {
      on_device_.push_back(i);
    } else {
      on_host_.push_back(i);
      host_inputs_.push_back(inputs[i]);
    }
  }
  host_results_ = {};
  if (!on_host_.empty()) host_results_ = host_.sample(logits.host(), host_inputs_);  // rows are as they were
  if (!draws_.empty()) kernels_.start_draws(logits.device(), draws_, edits_);
}

std::span<const SampleResult> StepSampler::finish(StepLogits* logits) {
  if (draws_.empty()) return host_results_;
  const std::span<const DrawnToken> drawn = kernels_.finish_draws();
  for (size_t i = 0; i < on_device_.size(); ++i)
    results_[on_device_[i]] = result_of(drawn[i], inputs_[on_device_[i]], logits);
  for (size_t i = 0; i < on_host_.size(); ++i) results_[on_host_[i]] = host_results_[i];
  return std::span(results_).first(inputs_.size());
}

// False where the device cannot do it.
bool StepSampler::add_draw(const SampleInput& input, int64_t vocab_size) {
  if (input.num_logprobs >= 0 || input.keeps_row || !input.processed.empty()) return false;
  const SamplingParams& params = *input.params;
  const size_t first_edit = edits_.size();
  if (needs_processing(input)) {
    places_.resize(static_cast<size_t>(vocab_size));
    if (!append_edits(input, places_, edits_)) return false;
  }
  draws_.push_back({.row = static_cast<int32_t>(input.row),
                    .first_edit = static_cast<int32_t>(first_edit),
                    .num_edits = static_cast<int32_t>(edits_.size() - first_edit),
                    .temperature = params.temperature,
                    .top_k = params.top_k,
                    .top_p = params.top_p,
                    .min_p = params.min_p,
                    .uniform = random_uniform(params.seed, input.draw)});
  return true;
}

SampleResult StepSampler::result_of(const DrawnToken& drawn, const SampleInput& input, StepLogits* logits) {
  SampleResult result;
  switch (drawn.outcome) {
    case DrawnToken::Outcome::kDrawn:
      result.token = drawn.token;
      break;
    case DrawnToken::Outcome::kNotFinite:
      result.error = no_finite_logits(input, drawn.max);
      break;
    case DrawnToken::Outcome::kNoneLeft:
      result.error = no_token_left(drawn.max);
      result.error_code = ErrorCode::kInvalidArgument;
      break;
    case DrawnToken::Outcome::kTooMany:
      result.again = logits == nullptr;
      if (logits != nullptr)
        result.token = draw_token(logits_row(logits->host_row(input.row), 0, row_), drawn.max, *input.params,
                                  random_uniform(input.params->seed, input.draw), scratch_);
      break;
  }
  return result;
}

}  // namespace lmdeploy
