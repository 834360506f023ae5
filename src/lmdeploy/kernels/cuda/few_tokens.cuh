// linear for few tokens with weights of 16 bits, the left factor of 16x8x16 products; tokens are the right
// one.
//
// A lane reads 16 bytes of a row of either, eight consecutive columns, and takes them as the columns that two
// products want: a sum does not mind the order of its terms.
#pragma once

#include "lmdeploy/kernels/cuda/weight_stream.cuh"

namespace lmdeploy::cuda {
namespace {

template <typename T>
struct FloatUnits {
  static constexpr int kCols = 64, kBytes = 16 * kCols * static_cast<int>(sizeof(T));
  static constexpr int kStrands = 16, kBlocks = 1, kRingBytes = 8 << 10, kMostAhead = 2, kMostTiles = 2;
  static constexpr bool kOwn = true;
  static constexpr int kUnitStep = kCols * static_cast<int>(sizeof(T));

  int64_t row_bytes;

  __device__ explicit FloatUnits(const FewTokensArgs& a)
      : row_bytes(int64_t{a.cols} * static_cast<int>(sizeof(T))) {}
  __device__ const std::byte* first(const FewTokensArgs& a) const {
    return static_cast<const std::byte*>(a.weight) + lane() / 4 * row_bytes + lane() % 4 * 16;
  }

  // Zeros beyond the columns and rows.
  __device__ void copy(uint32_t slot, const std::byte* from, int rows_left, int columns_left) const {
    slot += static_cast<uint32_t>(lane()) * 16;
    rows_left -= lane() / 4;
    columns_left -= lane() % 4 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i % 2 * 8, column = i / 2 * 32;
      const bool is_there = row < rows_left && column < columns_left;
      copy_async(slot + i * 512,
                 is_there ? from + row * row_bytes + column * static_cast<int>(sizeof(T)) : from,
                 is_there ? 16 : 0);
    }
  }
  template <int kTokenTiles>
  __device__ static void multiply(float (&sums)[kTokenTiles][4], uint32_t slot, int,
                                  const uint4 (&x)[2][kTokenTiles]) {
    slot += static_cast<uint32_t>(lane()) * 16;
#pragma unroll
    for (int s = 0; s < 2; ++s) {
      const uint4 first = load_shared(slot + s * 1024), second = load_shared(slot + s * 1024 + 512);
      const uint32_t front[4] = {first.x, second.x, first.y, second.y},
                     back[4] = {first.z, second.z, first.w, second.w};
#pragma unroll
      for (int t = 0; t < kTokenTiles; ++t) {
        mma<T>(sums[t], front, x[s][t].x, x[s][t].y);
        mma<T>(sums[t], back, x[s][t].z, x[s][t].w);
      }
    }
  }
};

template <typename T, int kTokenTiles>
void launch_few_tokens(const FewTokensArgs& args, const DeviceLimits& device, cudaStream_t stream) {
  if (args.glu)
    launch_weight_stream<T, FloatUnits<T>, kTokenTiles, true>(args, device, stream);
  else
    launch_weight_stream<T, FloatUnits<T>, kTokenTiles, false>(args, device, stream);
}

}  // namespace

template <typename T>
void run_few_tokens(const FewTokensArgs& args, const DeviceLimits& device, cudaStream_t stream) {
  if (args.tokens <= 8)
    launch_few_tokens<T, 1>(args, device, stream);
  else if (args.tokens <= 16)
    launch_few_tokens<T, 2>(args, device, stream);
  else
    launch_few_tokens<T, 4>(args, device, stream);
}

}  // namespace lmdeploy::cuda
