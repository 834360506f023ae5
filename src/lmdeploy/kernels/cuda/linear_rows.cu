// linear and expert_linear for few tokens with the quantised kinds that have no format of
// integer_weight.h: a warp for each row, which reads it once.
#include "lmdeploy/kernels/cuda/linear_tiles.h"
#include "lmdeploy/kernels/cuda/quant.cuh"
#include "lmdeploy/kernels/cuda/work.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kWarps = 8, kTokens = 8;

// Of each token a lane sums every 32nd group of eight columns; then the lanes' sums are added.
template <typename W>
__global__ __launch_bounds__(kWarps * 32) void row_kernel(const __grid_constant__ TileArgs a) {
  const Work work = find_work<kTokens>(a.weights, static_cast<int>(a.tokens), static_cast<int>(blockIdx.y));
  const int row = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
  if (work.weight == nullptr || row >= a.rows) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, tokens = work.end_token - work.first_token;
  const std::byte* x = a.x + work.first_token * a.x_stride_bytes;
  float sums[kTokens] = {};
  for (int k = lane * 8; k < a.cols; k += 32 * 8) {
    float w[8];
    read8_weight<W>(work.weight, row, a.weight_row_bytes, k, a.cols, a.weight_wide, w);
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= tokens) break;
      float values[8];
      read8_any(x + t * a.x_stride_bytes, a.x_dtype, k, a.cols, a.x_wide, values);
      for (int j = 0; j < 8; ++j) sums[t] = fmaf(values[j], w[j], sums[t]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == t && t < tokens)
      store_any(a.out + (work.first_token + t) * a.out_stride_bytes, a.out_dtype, row,
                work.bias == nullptr ? sum : sum + work.bias[row]);
  }
}

}  // namespace

bool run_rows(const TileArgs& args, DType weight_dtype, cudaStream_t stream) {
  const auto run = [&]<DType kKind>(Type<Quant<kKind>>) {
    const int64_t tiles = args.weights.start == nullptr ? ceil_div(args.tokens, kTokens)
                                                        : args.tokens / kTokens + args.weights.count;
    const dim3 grid(static_cast<unsigned>(ceil_div(args.rows, kWarps)), static_cast<unsigned>(tiles));
    row_kernel<Quant<kKind>><<<grid, kWarps * 32, 0, stream>>>(args);
    check_launch("linear", {args.tokens, args.rows, args.cols});
    return true;
  };
  switch (weight_dtype) {
    case DType::kQ5_0:
      return run(Type<Quant<DType::kQ5_0>>());
    case DType::kQ5_1:
      return run(Type<Quant<DType::kQ5_1>>());
    case DType::kQ4_K:
      return run(Type<Quant<DType::kQ4_K>>());
    case DType::kQ5_K:
      return run(Type<Quant<DType::kQ5_K>>());
    case DType::kQ6_K:
      return run(Type<Quant<DType::kQ6_K>>());
    case DType::kF8G64:
      return run(Type<Quant<DType::kF8G64>>());
    default:
      return false;
  }
}

}  // namespace lmdeploy::cuda
