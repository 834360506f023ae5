// linear and expert_linear for what the faster ways do not take: tiles of fused multiply-adds in f32.
#pragma once

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/expert_weights.h"
#include "lmdeploy/kernels/cuda/integer_weight.h"

namespace lmdeploy::cuda {

struct TileArgs {
  const std::byte* x;
  int64_t x_stride_bytes;
  DType x_dtype;
  bool x_wide;
  std::byte* out;
  int64_t out_stride_bytes;
  DType out_dtype;
  int64_t tokens;
  int rows, cols;
  int64_t weight_row_bytes;
  bool weight_wide;
  ExpertWeights weights;
};

void run_float_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream);
void run_quant_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream);
/// The same, faster for up to some 16 tokens of a weight. false: not for this kind.
bool run_rows(const TileArgs& args, DType weight_dtype, cudaStream_t stream);
void run_integer_tiles(const TileArgs& args, const IntegerFormat& format, cudaStream_t stream);

}  // namespace lmdeploy::cuda
