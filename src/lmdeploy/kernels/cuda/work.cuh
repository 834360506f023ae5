// Which tokens a block of threads multiplies, and with what.
#pragma once

#include "lmdeploy/kernels/cuda/expert_weights.h"
#include "lmdeploy/kernels/cuda/ragged.cuh"

namespace lmdeploy::cuda {

/// Tokens first_token to end_token; none where weight is null.
struct Work {
  const std::byte* weight;
  const float* bias;  // may be null
  int first_token, end_token;
};

/// Of tile blockIdx `tile` of kTokens tokens. Expert e's tiles are floor(start[e] / kTokens) + e and those
/// after it: enough for its tokens, and no other's. All threads of a warp call it.
template <int kTokens>
__device__ Work find_work(const ExpertWeights& experts, int tokens, int tile) {
  if (experts.start == nullptr)
    return {experts.weights[0], experts.bias, tile * kTokens, min((tile + 1) * kTokens, tokens)};
  const int32_t* start = experts.start + experts.first;
  const auto first_tile = [&](int e) { return start[e] / kTokens - start[0] / kTokens + e; };
  const int e = find_owner(experts.count, tile, first_tile);
  const int first = start[e] + (tile - first_tile(e)) * kTokens, end = min(first + kTokens, start[e + 1]);
  const float* bias =
      experts.bias == nullptr ? nullptr : experts.bias + (experts.first + e) * experts.bias_stride;
  return {first < end ? experts.weights[e] : nullptr, bias, first, end};
}

}  // namespace lmdeploy::cuda
