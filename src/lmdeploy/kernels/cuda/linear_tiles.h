// linear and expert_linear for what the faster ways do not take: tiles of fused multiply-adds in f32.
#pragma once

#include "lmdeploy/kernels/cuda/cuda_kernels.h"

namespace lmdeploy::cuda {

constexpr int kMostExperts = 512;

struct TileArgs {
  const std::byte* x;
  int64_t x_stride_bytes;
  DType x_dtype;
  bool x_wide;
  std::byte* out;
  int64_t out_stride_bytes;
  DType out_dtype;
  const float* bias;    // may be null
  int64_t bias_stride;  // from one expert's to the next one's
  int64_t tokens;
  int rows, cols;
  int64_t weight_row_bytes;
  bool weight_wide;
  const int32_t* expert_start;  // null: one weight for all tokens
  int first_expert, num_experts;
  const std::byte* weights[kMostExperts];  // null: this expert is another call's
};

void run_float_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream);
void run_quant_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream);

}  // namespace lmdeploy::cuda
