// linear for few tokens with weights of 4 or 8 bits: as few_tokens.cuh, with tiles of integers.
#pragma once

#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/integer_tile.cuh"
#include "lmdeploy/kernels/cuda/weight_stream.cuh"

namespace lmdeploy::cuda {
namespace {

/// Strands of a tile: see WeightStream.
template <typename W>
constexpr int kStrandsOf = W::kBits == 4 ? 8 : 16;

template <typename T, typename W>
struct IntegerUnits {
  static constexpr int kCols = W::kUnitCols, kBytes = W::kUnitBytes, kUnitStep = kBytes;
  static constexpr int kStrands = kStrandsOf<W>, kBlocks = 16 / kStrands,
                       kRingBytes = (W::kBits == 4 ? 6 : 8) << 10, kMostAhead = 1, kMostTiles = 4;
  static constexpr bool kOwn = false;

  int64_t row_bytes;

  __device__ explicit IntegerUnits(const FewTokensArgs& a)
      : row_bytes(int64_t{(a.cols + kCols - 1) / kCols} * (kBytes / 16)) {}
  __device__ const std::byte* first(const FewTokensArgs& a) const {
    return static_cast<const std::byte*>(a.weight) + lane() * 16;
  }

  __device__ void copy(uint32_t slot, const std::byte* from, int, int) const {
    slot += static_cast<uint32_t>(lane()) * 16;
#pragma unroll
    for (int at = 0; at < kBytes; at += 512)
      if (at + 512 <= kBytes || at + lane() * 16 < kBytes) copy_async(slot + at, from + at, 16);
  }
  template <int kTokenTiles>
  __device__ static void multiply(float (&sums)[kTokenTiles][4], uint32_t slot, int columns_left,
                                  const uint4 (&x)[kCols / 32][kTokenTiles]) {
    IntegerUnit<T, W> integers;
    integers.load_shared(slot);
    integers.multiply(sums, columns_left, [&](int t, int column) { return x[column / 32][t]; });
  }
};

constexpr int kExpertWarps = 8;

// 16 rows of an expert for its tokens; strands as in WeightStream.
template <typename T, typename W, int kTokenTiles>
__device__ void multiply_few(const FewTokensArgs& a, const Work& work) {
  constexpr int kDepth = W::kLoads >= 4 ? 1 : 4 / W::kLoads;  // 64 bytes a lane
  constexpr int kStrands = kStrandsOf<W>;
  __shared__ float shared[kStrands][8 * kTokenTiles][16];
  const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
  const T* tokens[kTokenTiles];
#pragma unroll
  for (int t = 0; t < kTokenTiles; ++t) {  // the last one stands for those that are not there
    const int token = min(work.first_token + t * 8 + lane() / 4, work.end_token - 1);
    tokens[t] = static_cast<const T*>(a.x) + token * a.x_stride + lane() % 4 * 8;
  }
  for (int strand = warp(); strand < kStrands; strand += kExpertWarps) {
    IntegerTile<T, W, kDepth> integers(work.weight + int64_t{blockIdx.y} * units * W::kUnitBytes, strand,
                                       kStrands, units);
    float sums[kTokenTiles][4] = {};
    for (int unit = strand; unit < units; unit += kDepth * kStrands) {
#pragma unroll
      for (int d = 0; d < kDepth; ++d) {
        const int k = (unit + d * kStrands) * W::kUnitCols;
        if (k >= a.cols) break;  // all lanes
        integers[d].multiply(sums, a.cols - k, [&](int t, int column) {
          return *reinterpret_cast<const uint4*>(tokens[t] + k + column);
        });
        integers.load_next(d);
      }
    }
    for (int t = 0; t < kTokenTiles; ++t)
      for (int i = 0; i < 4; ++i)
        shared[strand][t * 8 + lane() % 4 * 2 + i % 2][lane() / 4 + i / 2 * 8] = sums[t][i];
  }
  __syncthreads();
  store<false, 8 * kTokenTiles, 16, T>(
      a, work, Activation::kSilu, static_cast<int>(blockIdx.y) * 16,
      [&](int token, int at) {
        float sum = 0;
        for (int s = 0; s < kStrands; ++s) sum += shared[s][token][at];
        return sum;
      },
      kExpertWarps * 32);
}

template <typename T, typename W, int kTokenTiles>
__global__ __launch_bounds__(kExpertWarps * 32,
                             3) void expert_integers_kernel(const __grid_constant__ FewTokensArgs a,
                                                            const __grid_constant__ ExpertWeights experts) {
#if LMDEPLOY_HAS_MMA
  const Work work = find_work<kTokenTiles * 8>(experts, a.tokens, static_cast<int>(blockIdx.x));
  if (work.weight != nullptr) multiply_few<T, W, kTokenTiles>(a, work);
#endif
}

template <typename T, typename W, int kTokenTiles>
void launch_expert_integers(const FewTokensArgs& args, int64_t token_tiles, const ExpertWeights& experts,
                            cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(token_tiles), static_cast<unsigned>(ceil_div(args.rows, 16)));
  expert_integers_kernel<T, W, kTokenTiles><<<grid, kExpertWarps * 32, 0, stream>>>(args, experts);
}

}  // namespace

template <typename T, int kBits>
void run_few_integers(const FewTokensArgs& args, const IntegerFormat& format, const DeviceLimits& device,
                      cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    const bool one = args.tokens <= 8 && !args.one_order;
    if (args.glu && one)
      launch_weight_stream<T, IntegerUnits<T, W>, 1, true>(args, device, stream);
    else if (args.glu)
      launch_weight_stream<T, IntegerUnits<T, W>, 2, true>(args, device, stream);
    else if (one)
      launch_weight_stream<T, IntegerUnits<T, W>, 1, false>(args, device, stream);
    else
      launch_weight_stream<T, IntegerUnits<T, W>, 2, false>(args, device, stream);
  });
}

template <typename T, int kBits>
void run_expert_integers(const FewTokensArgs& args, const ExpertWeights& experts, const IntegerFormat& format,
                         cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    if (args.tokens <= 8 * experts.count && !args.one_order)
      launch_expert_integers<T, W, 1>(args, args.tokens / 8 + experts.count, experts, stream);
    else
      launch_expert_integers<T, W, 2>(args, args.tokens / 16 + experts.count, experts, stream);
  });
}

}  // namespace lmdeploy::cuda
