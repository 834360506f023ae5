// A cache of plain elements as attention_tiled.cuh reads it: q, keys and values are of one 16-bit type.
//
// Weights are kept to twice 16 bits (a rounded part and what it lacks), each multiplied with the values, and
// summed by the same products: the result is as good as one in f32.
#pragma once

#include "lmdeploy/kernels/cuda/attention_rows.cuh"

namespace lmdeploy::cuda {
namespace {

/// Of a pair's halves: the sign bit is set where the exponent is that of NaN and infinity.
template <typename T>
__device__ uint32_t carry_of_exponents(uint32_t pair) {
  constexpr uint32_t kExponents = std::is_same_v<T, __half> ? 0x7c007c00 : 0x7f807f80;
  return (pair & kExponents) + (0x80008000 - kExponents);
}
/// The halves of a pair that are NaN or infinite, as all ones.
template <typename T>
__device__ uint32_t not_finite(uint32_t pair) {
  return (carry_of_exponents<T>(pair) >> 15 & 0x00010001) * 0xffff;
}

/// Which of 16 keys the lane's rows see, as 1 and 0 of T: a factor of mma().
template <typename T>
__device__ void seen_keys(const LaneRows& rows, int first_key, uint32_t (&seen)[4]) {
  for (int part = 0; part < 4; ++part) {
    const int key = first_key + part / 2 * 8 + lane() % 4 * 2;
    seen[part] = pack<T>(rows.sees(part % 2, key) ? 1.0f : 0.0f, rows.sees(part % 2, key + 1) ? 1.0f : 0.0f);
  }
}

/// Where values of 16 keys and 2 * 8 columns are not finite, 0 stands for them in `b`, and rows that see them
/// become NaN: a weight of 0 would not keep them out of the other rows.
template <typename T>
__device__ void poison(uint32_t (&b)[4], const LaneRows& rows, int first_key, float (&first)[4],
                       float (&second)[4]) {
  uint32_t any = 0;
  for (int i = 0; i < 4; ++i) any |= carry_of_exponents<T>(b[i]);
  if (!__any_sync(~0u, (any & 0x80008000) != 0)) return;
  const uint32_t ones = pack<T>(1, 1);
  uint32_t bad[4], seen[4];
  for (int i = 0; i < 4; ++i) bad[i] = not_finite<T>(b[i]);
  seen_keys<T>(rows, first_key, seen);
  float count[2][4] = {};
  for (int j = 0; j < 2; ++j) mma<T>(count[j], seen, bad[2 * j] & ones, bad[2 * j + 1] & ones);
  for (int i = 0; i < 4; ++i) {
    if (count[0][i] > 0) first[i] = nanf("");
    if (count[1][i] > 0) second[i] = nanf("");
    b[i] &= ~bad[i];
  }
}

}  // namespace

/// `kStages`: tiles of keys and values that are in shared memory at once.
template <typename Type, int kDims>
struct Elements {
  using T = Type;
  static constexpr int kDim = kDims, kStages = 2;
  static constexpr int kStride =
      kDim + 8;  // elements of a key in shared memory: rows begin in different banks
  static constexpr int kTileBytes = 2 * kTileKeys * kStride * 2;
  static constexpr bool kPairs = true;  // column(n, 1) follows column(n, 0)
  static constexpr bool kHasPromptKernel = kDim <= 128;
  /// Tiles are whole blocks of the cache or parts of one.
  static bool suits_prompts(const AttentionArgs& a) {
    constexpr int kLeastBlock = 8;
    const bool whole =
        a.block_len % kTileKeys == 0 || (kTileKeys % a.block_len == 0 && a.block_len >= kLeastBlock);
    return whole && a.num_blocks * a.block_elements / a.head_dim <= INT32_MAX;
  }
  static constexpr int kNarrowBlocks = kDim <= 128 ? 3 : 1;  // of the narrow kernel, on a multiprocessor
  template <int kCols>
  using Sums = cuda::Sums<kCols>;

  /// Element of the cache at which a key begins.
  __device__ static int64_t place(const AttentionArgs& a, int64_t block, int kv_head, int row) {
    return block * a.block_elements + a.k_offset + (int64_t{kv_head} * a.block_len + row) * a.head_dim;
  }
  __device__ static int column(int n, int j) { return n * 8 + lane() % 4 * 2 + j; }

  /// Starts the copy of a tile's keys, then its values, to `stage` [2 * kTileKeys][kStride].
  template <int kThreads>
  __device__ static void load_tile(const AttentionArgs& a, int, const int64_t* places, std::byte* stage) {
    constexpr int kPerRow = kDim / 8;
    const T* cache = reinterpret_cast<const T*>(a.cache);
    const int64_t to_values = a.v_offset - a.k_offset;
#pragma unroll
    for (int n = 0; n < kTileKeys * kPerRow / kThreads; ++n) {
      const int i = thread() + n * kThreads, row = i / kPerRow, d = i % kPerRow * 8;
      const int64_t place = places[row];
      const bool exists = place >= 0 && d < a.head_dim;
      const T* from = exists ? cache + place + d : reinterpret_cast<const T*>(&kNaNs);
      const int bytes = exists || place == Keys::kNowhere ? 16 : 0;
      T* to = reinterpret_cast<T*>(stage) + row * kStride + d;
      copy_async(to, from, bytes);
      copy_async(to + kTileKeys * kStride, exists ? from + to_values : from, bytes);
    }
  }

  /// A lane's part of 16 query rows.
  struct Queries {
    uint32_t parts[kDim / 16][4];

    __device__ Queries(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows) {
      const std::byte* row[2];
      for (int i = 0; i < 2; ++i) row[i] = query_row(a, tile, rows, i);
#pragma unroll
      for (int k = 0; k < kDim / 16; ++k)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const int d = k * 16 + part / 2 * 8 + lane() % 4 * 2;
          const std::byte* from = row[part % 2];
          parts[k][part] =
              from != nullptr && d < a.head_dim ? *reinterpret_cast<const uint32_t*>(from + d * 2) : 0;
        }
    }
  };

  /// scores[n] += q * keys^T for the kCount * 8 keys of the tile from `first_key` on.
  template <int kCount>
  __device__ static void multiply_keys(float (&scores)[kCount][4], const Queries& q, const std::byte* tile,
                                       int first_key) {
    const T* keys = reinterpret_cast<const T*>(tile) + first_key * kStride;
    const T* row = keys + (lane() % 8 + lane() / 16 * 8) * kStride + lane() / 8 % 2 * 8;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int n = 0; n < kCount; n += 2) {
        uint32_t b[4];
        load_matrices(b, row + n * 8 * kStride + k * 16);
        mma<T>(scores[n], q.parts[k], b[0], b[1]);
        mma<T>(scores[n + 1], q.parts[k], b[2], b[3]);
      }
    }
  }

  /// Two neighbouring keys' weights for one row, as factors of their values.
  template <typename OfSpan>
  __device__ static void weigh(OfSpan&, int, float first, float second, const std::byte*, int, uint32_t& high,
                               uint32_t& low) {
    split_weights<T>(first, second, high, low);
  }

  /// sums += weights of the tile's keys from 16 * k on, of which the first one is `first_key` of its
  /// sequence, * their values' columns from first_n * 8 on.
  template <bool kEdge, int kCols>
  __device__ static void multiply_values(cuda::Sums<kCols>& sums, const uint32_t (&high)[4],
                                         const uint32_t (&low)[4], const std::byte* tile, int k, int first_n,
                                         const LaneRows& rows, int first_key) {
    constexpr int kTiles = kCols / 8,
                  kGroup = kTiles % 4 == 0 ? 4 : 2;  // columns that are in registers at once
    const uint32_t ones = pack<T>(1, 1);
    const T* values = reinterpret_cast<const T*>(tile) + (kTileKeys + k * 16) * kStride + first_n * 8;
    const T* row = values + (lane() % 8 + lane() / 8 % 2 * 8) * kStride + lane() / 16 * 8;
    mma<T>(sums.weights, high, ones, ones);
#pragma unroll
    for (int n = 0; n < kTiles; n += kGroup) {
      uint32_t b[kGroup / 2][4];
#pragma unroll
      for (int j = 0; j < kGroup / 2; ++j) {
        load_transposed(b[j], row + (n + 2 * j) * 8);
        if constexpr (kEdge)
          poison<T>(b[j], rows, first_key, sums.values[n + 2 * j], sums.values[n + 2 * j + 1]);
      }
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        mma<T>(sums.values[n + j], high, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      if (n == 0) mma<T>(sums.weights, low, ones, ones);
#pragma unroll
      for (int j = 0; j < kGroup; ++j)
        mma<T>(sums.values[n + j], low, b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
    }
  }
};

}  // namespace lmdeploy::cuda
