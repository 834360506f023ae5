// Draws the next token of each sequence from its logits. The order of the filters is that of SamplingParams.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/engine/logit_processing.h"
#include "lmdeploy/engine/request.h"
#include "lmdeploy/engine/token_draw.h"

namespace lmdeploy {

struct SampleResult {
  int token = -1;          // -1: `error` says why there is none
  TokenLogprobs logprobs;  // when asked for
  std::string error;       // NaN or +inf among the logits, or every token banned
  /// With `error`: kInternal of what the model gave, kInvalidArgument of what the request made of it.
  ErrorCode error_code = ErrorCode::kInternal;
  bool again = false;  // neither token nor error: the row has to be computed and drawn from once more
};

/// Of `token` and the `count` best ones: log-softmax of the row, whose maximum is `max`, finite.
TokenLogprobs log_probabilities(std::span<const float> row, float max, int token, int count,
                                std::vector<Candidate>& candidates);

// Why there is no token; `max`: the largest logit, NaN where there is one.
std::string no_finite_logits(const SampleInput& input, float max);
std::string no_token_left(float max);

/// Allocates nothing once buffers have grown to the vocabulary, but for logprobs and error texts.
class Sampler {
 public:
  /// `threads` shares out the rows; it must outlive the sampler.
  explicit Sampler(ThreadPool& threads);

  /// results[i] belongs to inputs[i]. `logits`: [rows, vocab_size], any float type.
  std::span<const SampleResult> sample(ConstTensorView logits, std::span<const SampleInput> inputs);

 private:
  struct Scratch {  // of one thread
    std::vector<float> logits, processed;
    std::vector<int32_t> counts;  // [vocab_size], zero between uses
    DrawScratch draw;
  };
  static void sample_one(ConstTensorView logits, const SampleInput& input, Scratch& scratch,
                         SampleResult& result);

  ThreadPool& threads_;
  std::vector<Scratch> scratch_;  // one a thread
  std::vector<SampleResult> results_;
};

}  // namespace lmdeploy
