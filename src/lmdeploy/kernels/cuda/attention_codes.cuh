// A cache in codes as attention_tiled.cuh reads it. Codes are whole numbers, which both 16-bit types hold
// exactly: they are what is multiplied. A key's scale and min join its finished products (q . (scale * code +
// min) = scale * (q . code) + min * sum(q)), a value's scale its weight, and the mins of the values are added
// up beside them. Codes become numbers in registers, on the way from shared memory to the product.
#pragma once

#include "lmdeploy/kernels/cuda/attention_rows.cuh"

namespace lmdeploy::cuda {
namespace {

template <typename T>
__device__ uint32_t subtract(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const Pair result = __hsub2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&result);
}

/// Bytes `first` and `second` of a word as two numbers.
template <typename T>
__device__ uint32_t bytes_of(uint32_t word, int first, int second) {
  if constexpr (std::is_same_v<T, __half>) {  // 1024 + byte, less 1024
    const auto order = static_cast<unsigned>(0x4040 | second << 8 | first);
    return subtract<T>(__byte_perm(word, 0x64646464, order), 0x64006400);
  } else {  // 2^23 + byte in f32, less 2^23
    const auto number = [&](int i) {
      const uint32_t bits = __byte_perm(word, 0x4b000000, static_cast<unsigned>(0x7540 | i));
      return __fsub_rn(__int_as_float(static_cast<int>(bits)), 8388608.0f);
    };
    return pack<T>(number(first), number(second));
  }
}

/// The four bits from `shift` on of a word's halves as two numbers.
template <typename T>
__device__ uint32_t nibbles_of(uint32_t word, int shift) {
  constexpr uint32_t kBase = std::is_same_v<T, __half> ? 0x64006400 : 0x43004300;  // 1024 or 128: a step is 1
  return subtract<T>((word >> shift & 0x000f000f) | kBase, kBase);
}

/// Sums of a span whose mins are still apart; weights and mins by groups of 16 keys of each tile, and by
/// lanes.
template <int kCols, int kGroups>
struct CodeSums : Sums<kCols> {
  float group_weights[kGroups][2], group_mins[kGroups][2];  // of the lane's rows

  __device__ void clear() {
    Sums<kCols>::clear();
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < 2; ++i) group_weights[g][i] = group_mins[g][i] = 0;
  }
  __device__ void raise(const float (&tile_max)[2]) {
    float factor[2];
    if (!this->raise_max(tile_max, factor)) return;
    this->scale(factor);
    for (int g = 0; g < kGroups; ++g)
      for (int i = 0; i < 2; ++i) {
        group_weights[g][i] = __fmul_rn(group_weights[g][i], factor[i]);
        group_mins[g][i] = __fmul_rn(group_mins[g][i], factor[i]);
      }
  }
  /// Of all lanes of a row.
  __device__ static float over_lanes(float value) {
    value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
    return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
  }
  __device__ void finish_span() {
    for (int i = 0; i < 2; ++i) {
      float weight = over_lanes(group_weights[0][i]), min = over_lanes(group_mins[0][i]);
      for (int g = 1; g < kGroups; ++g) {
        weight = __fadd_rn(weight, over_lanes(group_weights[g][i]));
        min = __fadd_rn(min, over_lanes(group_mins[g][i]));
      }
      finish_row(i, weight, min);
    }
  }
  /// The warps have a group each.
  template <typename Memory>
  __device__ void finish_shared_span(Memory& memory) {
    for (int i = 0; i < 2; ++i) {
      const float weight = over_lanes(group_weights[0][i]), min = over_lanes(group_mins[0][i]);
      if (lane() % 4 != 0) continue;
      memory.group_sums[0][thread() / 32][lane() / 4 + 8 * i] = weight;
      memory.group_sums[1][thread() / 32][lane() / 4 + 8 * i] = min;
    }
    __syncthreads();
    const auto total = [&](int which, int row) {
      float sum = memory.group_sums[which][0][row];
      for (int w = 1; w < kNarrowWarps; ++w) sum = __fadd_rn(sum, memory.group_sums[which][w][row]);
      return sum;
    };
    for (int i = 0; i < 2; ++i) finish_row(i, total(0, lane() / 4 + 8 * i), total(1, lane() / 4 + 8 * i));
  }

 private:
  __device__ void finish_row(int i, float weight, float min) {
    this->weights[2 * i] = weight;
#pragma unroll
    for (int n = 0; n < kCols / 8; ++n)
      for (int j = 2 * i; j < 2 * i + 2; ++j) this->values[n][j] = __fadd_rn(this->values[n][j], min);
  }
};

}  // namespace

/// head_dim is kDim; planes are whole 16 bytes.
template <typename Type, int kDims, int kBits>
struct Codes {
  using T = Type;
  static constexpr int kDim = kDims, kStages = kBits == 8 ? 2 : 3;
  static constexpr int kRowBytes = kDim * kBits / 8, kChunks = kRowBytes / 16;
  static constexpr int kKeyParts = kBits == 4 ? 2 : 1;
  static constexpr int kCodesBytes = kTileKeys * kRowBytes;  // of keys or values
  static constexpr int kParams = 2 * kCodesBytes;            // where they begin, those of the keys first
  static constexpr int kValueParams = kParams + kTileKeys * kKeyParts * KvLayout::kParamBytes;
  static constexpr int kTileBytes = kValueParams + kTileKeys * KvLayout::kParamBytes;
  static constexpr bool kPairs = false;
  static constexpr int kNarrowBlocks = kBits == 8 ? 4 : 3;
  static constexpr int kOfChunk = 128 / kBits / 8;  // columns of 8 values that a chunk has
  template <int kCols, int kGroups>
  using Sums = CodeSums<kCols, kGroups>;

  /// The key's plane in the cache, and above it its row.
  static constexpr int kRowBits = 44;
  __device__ static int64_t place(const AttentionArgs& a, int64_t block, int kv_head, int row) {
    return a.codes.plane(block, kv_head, true) | int64_t{row} << kRowBits;
  }
  /// Of a value: lane l gets columns of 8 whose elements are two apart, in u4 those of the low bits first.
  __device__ static int column(int n, int j) {
    const int first = n / kOfChunk * 16 + 2 * (lane() % 4 * 2 + j) + n % 2;
    return kBits == 8 ? first : first + n % kOfChunk / 2 * (kDim / 2);
  }

  // Where chunk `c` of a row lies: rows that are read at once are in different banks. Keys are read by chunks
  // of one or two rows, values by one chunk of eight.
  __device__ static int key_chunk(int row, int c) {
    return row * kChunks + (kChunks == 8 ? c ^ (row & 1) * 4 : c);
  }
  __device__ static int value_chunk(int row, int c) {
    return row * kChunks + (c ^ (row / (8 / kChunks) & (kChunks - 1)));
  }

  template <int kThreads>
  __device__ static void load_tile(const AttentionArgs& a, int kv_head, const int64_t* places,
                                   std::byte* stage) {
    const CodePlace& p = a.codes;
    const int64_t to_values = p.v_offset - p.k_offset + kv_head * (p.v_plane - p.k_plane);
    const auto plane_of = [&](int row) { return a.cache + (places[row] & ((int64_t{1} << kRowBits) - 1)); };
    const auto row_of = [&](int row) { return static_cast<int>(places[row] >> kRowBits); };
#pragma unroll
    for (int i = thread(); i < kTileKeys * kChunks; i += kThreads) {
      const int row = i / kChunks, c = i % kChunks;
      const bool exists = places[row] >= 0;
      const std::byte* from = exists ? plane_of(row) + p.codes(row_of(row)) + c * 16 : a.cache;
      copy_async(stage + key_chunk(row, c) * 16, from, exists ? 16 : 0);
      copy_async(stage + kCodesBytes + value_chunk(row, c) * 16, exists ? from + to_values : from,
                 exists ? 16 : 0);
    }
    if (thread() >= 2 * kTileKeys) return;
    const int row = thread() % kTileKeys;
    const bool is_key = thread() < kTileKeys, exists = places[row] >= 0;
    const std::byte* from = reinterpret_cast<const std::byte*>(&kNaNs);
    if (exists) from = plane_of(row) + (is_key ? 0 : to_values) + p.params(row_of(row), is_key);
    const bool wanted = exists || places[row] == Keys::kNowhere;
    if (is_key)
      copy_few_async<kKeyParts * 4>(stage + kParams + row * kKeyParts * 4, from, wanted);
    else
      copy_few_async<4>(stage + kValueParams + row * 4, from, wanted);
  }

  /// A lane's part of 16 query rows, in the order in which it has a key's codes: turned and to twice 16 bits
  /// in u4.
  struct Queries {
    static constexpr int kSteps = kDim / 16;
    uint32_t parts[kSteps][4], low[kBits == 4 ? kSteps : 1][4];
    float sums[2][kKeyParts];  // of the lane's rows

    __device__ Queries(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::byte* row = query_row(a, tile, rows, i);
        if constexpr (kBits == 8)
          read(row, i);
        else
          read_turned(row, i);
      }
    }
    // Step s of a group of 64: elements 4s..4s+3 of the lane's 16.
    __device__ void read(const std::byte* row, int i) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < kSteps; ++k)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int d = k / 4 * 64 + lane() % 4 * 16 + k % 4 * 4 + half * 2;
          const uint32_t pair = row != nullptr ? *reinterpret_cast<const uint32_t*>(row + d * 2) : 0;
          const float2 both = unpack<T>(pair);
          sum += both.x + both.y;
          parts[k][half * 2 + i] = pair;
        }
      sums[i][0] = CodeSums<8, 1>::over_lanes(sum);
    }
    // A lane has kEach neighbours of either half.
    __device__ void read_turned(const std::byte* row, int i) {
      constexpr int kEach = kDim / 8;
      float x[2][kEach];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kEach; j += 2) {
          const int d = half * (kDim / 2) + lane() % 4 * kEach + j;
          const float2 pair = unpack<T>(row != nullptr ? *reinterpret_cast<const uint32_t*>(row + d * 2) : 0);
          x[half][j] = pair.x, x[half][j + 1] = pair.y;
        }
      turn_lane(x[0]);
      turn_lane(x[1]);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float sum = x[0][j] + x[1][j], difference = x[0][j] - x[1][j];
        x[0][j] = sum, x[1][j] = difference;
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kEach; ++j) sum += x[half][j] *= 1 / sqrtf(kDim);
        sums[i][half] = CodeSums<8, 1>::over_lanes(sum);
#pragma unroll
        for (int s = 0; s < kEach / 4; ++s)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd)
            split_weights<T>(x[half][4 * s + odd], x[half][4 * s + odd + 2],
                             parts[half * kEach / 4 + s][odd * 2 + i],
                             low[half * kEach / 4 + s][odd * 2 + i]);
      }
    }
    // Over the lane's neighbours and those of the other lanes that have the row.
    template <int kEach>
    __device__ static void turn_lane(float (&x)[kEach]) {
#pragma unroll
      for (int h = 1; h < kEach; h *= 2)
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          if ((j & h) == 0) {
            const float sum = x[j] + x[j + h], difference = x[j] - x[j + h];
            x[j] = sum, x[j + h] = difference;
          }
#pragma unroll
      for (int other = 1; other < 4; other *= 2)
#pragma unroll
        for (int j = 0; j < kEach; ++j) {
          const float theirs = __shfl_xor_sync(~0u, x[j], other);
          x[j] = (lane() & other) == 0 ? x[j] + theirs : theirs - x[j];
        }
    }
  };

  template <int kCount>
  __device__ static void multiply_keys(float (&scores)[kCount][4], const Queries& q, const std::byte* tile,
                                       int first_key) {
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const int key = first_key + n * 8 + lane() / 4, of_scores = first_key + n * 8 + lane() % 4 * 2;
      float products[kKeyParts][4] = {};
      if constexpr (kBits == 8) {
#pragma unroll
        for (int g = 0; g < kDim / 64; ++g) {
          const auto words =
              *reinterpret_cast<const Pack<uint32_t, 4>*>(tile + key_chunk(key, g * 4 + lane() % 4) * 16);
#pragma unroll
          for (int s = 0; s < 4; ++s)
            mma<T>(products[0], q.parts[g * 4 + s], bytes_of<T>(words.values[s], 0, 1),
                   bytes_of<T>(words.values[s], 2, 3));
        }
      } else {
        constexpr int kWords = kDim / 32;
        const auto words = *reinterpret_cast<const Pack<uint32_t, kWords>*>(tile + key * kRowBytes +
                                                                            lane() % 4 * kWords * 4);
#pragma unroll
        for (int s = 0; s < kWords; ++s)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const uint32_t b0 = nibbles_of<T>(words.values[s], half * 4),
                           b1 = nibbles_of<T>(words.values[s], 8 + half * 4);
            mma<T>(products[half], q.parts[half * kWords + s], b0, b1);
            mma<T>(products[half], q.low[half * kWords + s], b0, b1);
          }
      }
      const auto params = *reinterpret_cast<const Pack<__half2, 2 * kKeyParts>*>(
          tile + kParams + of_scores * kKeyParts * KvLayout::kParamBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int part = 0; part < kKeyParts; ++part) {
          const float2 p = __half22float2(params.values[i % 2 * kKeyParts + part]);
          const float score = __fmaf_rn(products[part][i], p.x, __fmul_rn(q.sums[i / 2][part], p.y));
          scores[n][i] = part == 0 ? score : __fadd_rn(scores[n][i], score);
        }
    }
  }

  // A weight of 0 is none, be the value NaN.
  template <typename OfSpan>
  __device__ static void weigh(OfSpan& sums, int i, int group, float first, float second,
                               const std::byte* tile, int key, uint32_t& high, uint32_t& low) {
    const auto params =
        *reinterpret_cast<const Pack<__half2, 2>*>(tile + kValueParams + key * KvLayout::kParamBytes);
    const float2 a = __half22float2(params.values[0]), b = __half22float2(params.values[1]);
    const auto times = [](float weight, float factor) { return weight == 0 ? 0 : __fmul_rn(weight, factor); };
    sums.group_weights[group][i] = __fadd_rn(sums.group_weights[group][i], __fadd_rn(first, second));
    sums.group_mins[group][i] =
        __fadd_rn(sums.group_mins[group][i], __fadd_rn(times(first, a.y), times(second, b.y)));
    split_weights<T>(times(first, a.x), times(second, b.x), high, low);
  }

  template <bool kEdge, int kCols>
  __device__ static void multiply_values(cuda::Sums<kCols>& sums, const uint32_t (&high)[4],
                                         const uint32_t (&low)[4], const std::byte* tile, int k, int first_n,
                                         const LaneRows&, int) {
    constexpr int kTiles = kCols / 8, kEach = kTiles < kOfChunk ? kTiles : kOfChunk;
    const int key = k * 16 + lane() % 16;
#pragma unroll
    for (int n = 0; n < kTiles; n += kEach) {
      const int chunk = (first_n + n) / kOfChunk;
      uint32_t codes[2];
      load_transposed(codes, tile + kCodesBytes + value_chunk(key, chunk) * 16);
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int which = (first_n + n + j) % kOfChunk;
        uint32_t b[2];
        for (int i = 0; i < 2; ++i)
          b[i] = kBits == 8 ? bytes_of<T>(codes[i], which, which + 2)
                            : nibbles_of<T>(codes[i], which % 2 * 8 + which / 2 * 4);
        mma<T>(sums.values[n + j], high, b[0], b[1]);
        mma<T>(sums.values[n + j], low, b[0], b[1]);
      }
    }
  }
};

}  // namespace lmdeploy::cuda
