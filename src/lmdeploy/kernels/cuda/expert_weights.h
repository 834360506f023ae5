// The weights that a kernel multiplies rows of tokens with: one for all of them, or an expert's for each run.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmdeploy::cuda {

constexpr int kMostExperts = 512;

struct ExpertWeights {
  const int32_t* start;  // [first + count + 1]: where each expert's tokens begin; null: one weight for all
  int first, count;
  const float* bias;                       // may be null
  int64_t bias_stride;                     // from one expert's to the next one's
  const std::byte* weights[kMostExperts];  // null: this expert is another call's
};

}  // namespace lmdeploy::cuda
