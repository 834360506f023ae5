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
  std::span<const SampleResult> sample(StepLogits& logits, std::span<const SampleInput> inputs);

 private:
  bool add_draw(const SampleInput& input, int64_t vocab_size);
  SampleResult result_of(const DrawnToken& drawn, const SampleInput& input, StepLogits& logits);

  const Kernels& kernels_;
  Sampler host_;
  std::vector<SampleResult> results_;
  std::vector<SampleInput> host_inputs_;
  std::vector<size_t> on_host_, on_device_;  // places of the inputs
  // Of the device's draws.
  std::vector<TokenDraw> draws_;
  std::vector<LogitEdit> edits_;
  std::vector<DrawnToken> drawn_;
  std::vector<int32_t> places_;  // [vocab_size], zero between uses
  // For rows that are too much for it.
  std::vector<float> row_;
  DrawScratch scratch_;
};

}  // namespace lmdeploy
