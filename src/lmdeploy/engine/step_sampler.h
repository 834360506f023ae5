// Draws a step's tokens where its logits are: on the device what it can draw, else on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/engine/sampler.h"
#include "lmdeploy/engine/step_logits.h"

namespace lmdeploy {

/// What it draws is the Sampler's, whoever draws: on a device a sum is added up in another order, which
/// matters where the random number lies within rounding of a token's border.
class StepSampler {
 public:
  /// `kernels` must outlive the sampler.
  explicit StepSampler(const Kernels& kernels) : kernels_(kernels), host_(kernels.threads()) {}

  /// results[i] belongs to inputs[i]. Rows whose input keeps them stay as they are.
  std::span<const SampleResult> sample(StepLogits& logits, std::span<const SampleInput> inputs) {
    start(logits, inputs);
    return finish(&logits);
  }
  /// The same in two parts. `inputs` stay until finish().
  void start(StepLogits& logits, std::span<const SampleInput> inputs);
  /// Whether a device draws all that was started last: inputs[i] as its draw i.
  bool all_on_device() const { return kernels_.draws_tokens() && on_host_.empty(); }
  /// Without the logits, when a later step has taken their place, a draw that the device cannot do has the
  /// result SampleResult::again.
  std::span<const SampleResult> finish(StepLogits* logits);

 private:
  bool add_draw(const SampleInput& input, int64_t vocab_size);
  SampleResult result_of(const DrawnToken& drawn, const SampleInput& input, StepLogits* logits);

  const Kernels& kernels_;
  Sampler host_;
  std::span<const SampleInput> inputs_;
  std::vector<SampleResult> results_;
  std::vector<SampleInput> host_inputs_;
  std::span<const SampleResult> host_results_;
  std::vector<size_t> on_host_, on_device_;  // places of the inputs
  // Of the device's draws.
  std::vector<TokenDraw> draws_;
  std::vector<LogitEdit> edits_;
  std::vector<int32_t> places_;  // [vocab_size], zero between uses
  // For rows that are too much for it.
  std::vector<float> row_;
  DrawScratch scratch_;
};

}  // namespace lmdeploy
