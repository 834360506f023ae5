// One row after the other: check, process, draw, report log probabilities.
#include "lmdeploy/engine/sampler.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy {

TokenLogprobs log_probabilities(std::span<const float> row, float max, int token, int count,
                                std::vector<Candidate>& candidates) {
  const double total = log_sum_exp(row, max);
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - total); };
  TokenLogprobs out;
  out.chosen = logprob(row[static_cast<size_t>(token)]);
  select_top(row, count, candidates);
  for (const Candidate& candidate : candidates) out.top.emplace_back(candidate.id, logprob(candidate.logit));
  return out;
}

std::string no_finite_logits(const SampleInput& input, float max) {
  return cat("the model's logits for token ", input.tokens.size(), " have the maximum ", max,
             "; expected a finite one");
}

std::string no_token_left(float max) {
  return cat(
      "no token is left to draw: after logits_processors, repetition_penalty, presence_penalty, "
      "frequency_penalty, logit_bias, response_format, bad_words and min_new_tokens the largest logit is ",
      max, "; change what leaves nothing, such as bad_words that stand in every answer of a response_format");
}

Sampler::Sampler(ThreadPool& threads)
    : threads_(threads), scratch_(static_cast<size_t>(threads.num_threads())) {}

std::span<const SampleResult> Sampler::sample(ConstTensorView logits, std::span<const SampleInput> inputs) {
  if (results_.size() < inputs.size()) results_.resize(inputs.size());
  if (inputs.size() == 1) {
    sample_one(logits, inputs[0], scratch_[0], results_[0]);
  } else if (!inputs.empty()) {
    std::atomic<size_t> next{0};
    threads_.run([&](int worker) {
      for (size_t i = next++; i < inputs.size(); i = next++)
        sample_one(logits, inputs[i], scratch_[static_cast<size_t>(worker)], results_[i]);
    });
  }
  return std::span(results_).first(inputs.size());
}

void Sampler::sample_one(ConstTensorView logits, const SampleInput& input, Scratch& scratch,
                         SampleResult& result) {
  result = {};
  const std::span<const float> row = logits_row(logits, input.row, scratch.logits);
  const float max = max_logit(row);
  if (!std::isfinite(max)) {
    result.error = no_finite_logits(input, max);
    return;
  }
  std::span<const float> final_row = input.processed.empty() ? row : input.processed;
  if (needs_processing(input)) {
    scratch.processed.assign(final_row.begin(), final_row.end());
    scratch.counts.resize(row.size());
    process_logits(scratch.processed, input, scratch.counts);
    final_row = scratch.processed;
  }
  const float final_max = final_row.data() == row.data() ? max : max_logit(final_row);
  if (!std::isfinite(final_max)) {
    result.error = no_token_left(final_max);
    result.error_code = ErrorCode::kInvalidArgument;
    return;
  }
  result.token = draw_token(final_row, final_max, *input.params,
                            random_uniform(input.params->seed, input.draw), scratch.draw);
  if (input.num_logprobs >= 0)
    result.logprobs = log_probabilities(row, max, result.token, input.num_logprobs, scratch.draw.candidates);
}

}  // namespace lmdeploy
