// Temperature, top-k, top-p, min-p and the draw itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/engine/logits.h"
#include "lmdeploy/engine/request.h"

namespace lmdeploy {

/// Buffers of one thread; they keep their size.
struct DrawScratch {
  std::vector<Candidate> candidates;  // best first
  std::vector<float> weights;         // of the candidates, or of all tokens
  std::vector<double> block_sums;     // of the weights of all tokens
};

/// A token from softmax(logits / temperature) cut to its top_k best, then to the smallest set whose share is
/// at least top_p, then to those with at least min_p times the best one's probability. Greedy when
/// temperature is 0. `max` is the maximum of `logits`, finite; `uniform` the random number, in [0, 1).
int draw_token(std::span<const float> logits, float max, const SamplingParams& params, double uniform,
               DrawScratch& scratch);

}  // namespace lmdeploy
