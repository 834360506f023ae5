// The kernel of linear_tiles.h for one kind of weight.
#pragma once

#include "lmdeploy/kernels/cuda/linear_tiles.h"
#include "lmdeploy/kernels/cuda/quant.cuh"
#include "lmdeploy/kernels/cuda/work.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 64;   // outputs of a tile
constexpr int kTileDepth = 32;  // columns that are multiplied between two barriers

// Sums run over the columns in order, whatever the batch: a row's bits depend on nothing else.
template <typename W, int kTokens>
__global__ __launch_bounds__(kThreads) void tile_kernel(const __grid_constant__ TileArgs a) {
  constexpr int kPerThread = kTokens / 16;
  __shared__ float x_tile[kTileDepth][kTokens + 4], w_tile[kTileDepth][kTileRows + 4];
  const Work work = find_work<kTokens>(a.weights, static_cast<int>(a.tokens), static_cast<int>(blockIdx.y));
  if (work.weight == nullptr) return;
  const int tid = static_cast<int>(threadIdx.x), first_row = static_cast<int>(blockIdx.x) * kTileRows;
  const int load_row = tid / 4, load_k = tid % 4 * 8;
  const int64_t load_token = work.first_token + load_row;
  const std::byte* x_row = a.x + load_token * a.x_stride_bytes;
  float sums[kPerThread][4] = {};
  for (int k0 = 0; k0 < a.cols; k0 += kTileDepth) {
    const int k = k0 + load_k;
    float values[8] = {};
    if (first_row + load_row < a.rows && k < a.cols)
      read8_weight<W>(work.weight, first_row + load_row, a.weight_row_bytes, k, a.cols, a.weight_wide,
                      values);
    for (int j = 0; j < 8; ++j) w_tile[load_k + j][load_row] = values[j];
    if (load_row < kTokens) {
      for (float& value : values) value = 0;
      if (load_token < work.end_token && k < a.cols) read8_any(x_row, a.x_dtype, k, a.cols, a.x_wide, values);
      for (int j = 0; j < 8; ++j) x_tile[load_k + j][load_row] = values[j];
    }
    __syncthreads();
    for (int i = 0; i < kTileDepth; ++i) {
      const float4 w = *reinterpret_cast<const float4*>(&w_tile[i][tid % 16 * 4]);
      for (int m = 0; m < kPerThread; ++m) {
        const float x = x_tile[i][tid / 16 * kPerThread + m];
        sums[m][0] = fmaf(x, w.x, sums[m][0]);
        sums[m][1] = fmaf(x, w.y, sums[m][1]);
        sums[m][2] = fmaf(x, w.z, sums[m][2]);
        sums[m][3] = fmaf(x, w.w, sums[m][3]);
      }
    }
    __syncthreads();
  }
  for (int m = 0; m < kPerThread; ++m) {
    const int64_t token = work.first_token + tid / 16 * kPerThread + m;
    if (token >= work.end_token) break;
    for (int n = 0; n < 4; ++n) {
      const int row = first_row + tid % 16 * 4 + n;
      if (row >= a.rows) break;
      const float bias = work.bias == nullptr ? 0 : work.bias[row];
      store_any(a.out + token * a.out_stride_bytes, a.out_dtype, row, sums[m][n] + bias);
    }
  }
}

template <typename W>
void run_tiles(const TileArgs& args, cudaStream_t stream) {
  const auto columns = static_cast<unsigned>(ceil_div(args.rows, kTileRows));
  const bool few = args.tokens <= 16 * int64_t{args.weights.count};
  const int64_t tile = few ? 16 : 64;
  const int64_t tiles =
      args.weights.start == nullptr ? ceil_div(args.tokens, tile) : args.tokens / tile + args.weights.count;
  const dim3 grid(columns, static_cast<unsigned>(tiles));
  if (few)
    tile_kernel<W, 16><<<grid, kThreads, 0, stream>>>(args);
  else
    tile_kernel<W, 64><<<grid, kThreads, 0, stream>>>(args);
  check_launch("linear", {args.tokens, args.rows, args.cols});
}

}  // namespace
}  // namespace lmdeploy::cuda
