// A cache in codes as attention_tiled.cuh reads it. Codes are whole numbers, which both 16-bit types hold
// exactly. Keys' are what is multiplied: a key's scale and min join its finished products (q . (scale * code
// + min) = scale * (q . code) + min * sum(q)). A value is scale * code, rounded to f16, and its weight f16
// too; the mins are added up beside them. Codes become numbers in registers, on the way from shared memory to
// the product.
#pragma once

#include "lmdeploy/kernels/cuda/attention_rows.cuh"
#include "lmdeploy/kernels/cuda/kv_codes.cuh"

namespace lmdeploy::cuda {
namespace {

__device__ inline __half2 as_halves(uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
__device__ inline uint32_t bits_of(__half2 halves) { return *reinterpret_cast<const uint32_t*>(&halves); }
__device__ inline uint32_t subtract(uint32_t a, uint32_t b) {
  return bits_of(__hsub2(as_halves(a), as_halves(b)));
}

/// Zero, but the compiler does not know it. A constant with it added stays in a register, where the other one
/// of an instruction that takes two would be loaded each time.
__device__ inline uint32_t hidden_zero(const AttentionArgs& a) {
  return static_cast<uint32_t>(a.num_seqs) >> 31;
}

/// Bytes `first` and `second` of a word as two numbers, 1024 too much. `zero`: 0, perhaps a hidden one.
__device__ inline uint32_t bytes_and_1024(uint32_t word, int first, int second, uint32_t zero) {
  return __byte_perm(word, 0x64646464 + zero, static_cast<unsigned>(0x4040 | second << 8 | first));
}
__device__ inline uint32_t bytes_of(uint32_t word, int first, int second, uint32_t zero = 0) {
  return subtract(bytes_and_1024(word, first, second, zero), 0x64006400);
}

/// The low (kHigh: high) four bits of bytes 0 and 2 of a word as two numbers, 1024 (64, where a step is 1/16)
/// too much.
template <bool kHigh>
__device__ uint32_t nibbles_and_more(uint32_t word, uint32_t zero) {
  return kHigh ? (word & 0x00f000f0) | (0x54005400 + zero) : (word & 0x000f000f) | (0x64006400 + zero);
}
template <bool kHigh>
__device__ uint32_t nibbles_of(uint32_t word, uint32_t zero = 0) {
  return subtract(nibbles_and_more<kHigh>(word, zero), kHigh ? 0x54005400 : 0x64006400);
}

/// Scales of the values of two keys that follow each other. A code's bits behind those of a large number are
/// that number and the code: what the large one is too much is taken off in the multiply-add that makes scale
/// * code.
struct ValueScales {
  /// A scale from here on is divided by it, and its key's weight multiplied with it.
  static constexpr float kLarge = 32;
  uint32_t scale, offset, high_offset;

  /// A key whose scale is not finite has NaN for a min: that is enough.
  __device__ explicit ValueScales(const Pack<__half2, 2>& params) {
    const __half2 given = __lows2half2(params.values[0], params.values[1]);
    const uint32_t large = __hge2_mask(given, __float2half2_rn(kLarge)),
                   finite = __hle2_mask(given, __float2half2_rn(65504));
    const uint32_t less = bits_of(__hmul2(given, __float2half2_rn(1 / kLarge)));
    scale = ((less & large) | (bits_of(given) & ~large)) & finite;
    offset = bits_of(__hmul2(as_halves(scale), __float2half2_rn(-1024)));
    high_offset = bits_of(__hmul2(as_halves(scale), __float2half2_rn(-64)));
  }
  __device__ static float weight_factor(float scale) { return scale >= kLarge ? kLarge : 1; }

  __device__ uint32_t of_bytes(uint32_t word, int first, int second, uint32_t zero) const {
    return add(bytes_and_1024(word, first, second, zero), offset);
  }
  template <bool kHigh>
  __device__ uint32_t of_nibbles(uint32_t word, uint32_t zero) const {
    return add(nibbles_and_more<kHigh>(word, zero), kHigh ? high_offset : offset);
  }

 private:
  __device__ uint32_t add(uint32_t number, uint32_t less) const {
    return bits_of(__hfma2(as_halves(number), as_halves(scale), as_halves(less)));
  }
};

/// A factor, a power of two, that brings the largest of a row's finite numbers near the end of f16's range:
/// elements of other types can be multiplied as f16, then, and what is lost is 2^-39 of the largest one.
struct HalfRange {
  float factor, inverse;
  __device__ explicit HalfRange(float most) {
    const int exponent = max(-112, (__float_as_int(most) >> 23) - 127);
    factor = __int_as_float((127 + 14 - exponent) << 23);
    inverse = __int_as_float((127 - 14 + exponent) << 23);
  }
};

/// Of the four lanes that have a row.
__device__ inline float over_lanes(float value) {
  value = __fadd_rn(value, __shfl_xor_sync(~0u, value, 1));
  return __fadd_rn(value, __shfl_xor_sync(~0u, value, 2));
}

/// Sums of a span whose mins are still apart. Weights and mins are summed for each of the eight keys that
/// follow each other by themselves: the lane's are two of them.
template <int kCols>
struct CodeSums : Sums<kCols> {
  float key_weights[2][2], key_mins[2][2];  // of the lane's rows; of an even and an odd key

  __device__ void clear() {
    Sums<kCols>::clear();
    for (int i = 0; i < 4; ++i) key_weights[i / 2][i % 2] = key_mins[i / 2][i % 2] = 0;
  }
  __device__ void raise(const float (&tile_max)[2]) {
    float factor[2];
    if (!raise_max(this->max, tile_max, factor)) return;
    this->scale(factor);
    for (int i = 0; i < 4; ++i) {
      key_weights[i / 2][i % 2] = __fmul_rn(key_weights[i / 2][i % 2], factor[i / 2]);
      key_mins[i / 2][i % 2] = __fmul_rn(key_mins[i / 2][i % 2], factor[i / 2]);
    }
  }
  __device__ void finish_span() {
    for (int i = 0; i < 2; ++i) {
      this->weights[2 * i] = over_lanes(__fadd_rn(key_weights[i][0], key_weights[i][1]));
      const float min = over_lanes(__fadd_rn(key_mins[i][0], key_mins[i][1]));
#pragma unroll
      for (int n = 0; n < kCols / 8; ++n)
        for (int j = 2 * i; j < 2 * i + 2; ++j) this->values[n][j] = __fadd_rn(this->values[n][j], min);
    }
  }
};

}  // namespace

/// head_dim is kDim; planes are whole 16 bytes.
template <typename Type, int kDims, int kBitsOf>
struct Codes {
  using T = Type;
  static constexpr int kDim = kDims, kBits = kBitsOf, kStages = kBits == 8 ? 2 : 3;
  static constexpr int kRowBytes = kDim * kBits / 8, kChunks = kRowBytes / 16;
  static constexpr int kKeyParts = kBits == 4 ? 2 : 1;
  static constexpr int kCodesBytes = kTileKeys * kRowBytes;  // of keys or values
  static constexpr int kParams = 2 * kCodesBytes;            // where they begin, those of the keys first
  static constexpr int kValueParams = kParams + kTileKeys * kKeyParts * KvLayout::kParamBytes;
  static constexpr int kTileBytes = kValueParams + kTileKeys * KvLayout::kParamBytes;
  static constexpr bool kPairs = false;
  static constexpr bool kHasPromptKernel = true;
  static bool suits_prompts(const AttentionArgs&) { return true; }
  static constexpr int kSpanBlocks = 12;            // of the spans kernel, on a multiprocessor
  static constexpr int kOfChunk = 128 / kBits / 8;  // columns of 8 values that a chunk has
  template <int kCols>
  using Sums = CodeSums<kCols>;

  /// The key's plane in the cache, and above it its row.
  static constexpr int kRowBits = 44;
  __device__ static int64_t place(const AttentionArgs& a, int64_t block, int kv_head, int row) {
    return a.codes.plane(block, kv_head, true) | int64_t{row} << kRowBits;
  }
  __device__ static int64_t plane_of(int64_t place) { return place & ((int64_t{1} << kRowBits) - 1); }
  __device__ static int row_of(int64_t place) { return static_cast<int>(place >> kRowBits); }
  /// From a key's plane to its value's.
  __device__ static int64_t to_values(const AttentionArgs& a, int kv_head) {
    const CodePlace& p = a.codes;
    return p.v_offset - p.k_offset + kv_head * (p.v_plane - p.k_plane);
  }
  /// Of a value: lane l gets columns of 8 whose elements are two apart, in u4 those of the low bits first.
  __device__ static int column(int n, int j) { return column_at(n, lane() % 4 * 2 + j); }
  __device__ static int column_at(int n, int i) {
    const int first = n / kOfChunk * 16 + 2 * i + n % 2;
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
    const int64_t to_values = Codes::to_values(a, kv_head);
#pragma unroll
    for (int i = thread(); i < kTileKeys * kChunks; i += kThreads) {
      const int row = i / kChunks, c = i % kChunks;
      const bool exists = places[row] >= 0;
      const std::byte* from =
          exists ? a.cache + plane_of(places[row]) + p.codes(row_of(places[row])) + c * 16 : a.cache;
      copy_async(stage + key_chunk(row, c) * 16, from, exists ? 16 : 0);
      copy_async(stage + kCodesBytes + value_chunk(row, c) * 16, exists ? from + to_values : from,
                 exists ? 16 : 0);
    }
    if (thread() >= 2 * kTileKeys) return;
    const int row = thread() % kTileKeys;
    const bool is_key = thread() < kTileKeys, exists = places[row] >= 0;
    const std::byte* from = reinterpret_cast<const std::byte*>(&kNaNs);
    if (exists)
      from =
          a.cache + plane_of(places[row]) + (is_key ? 0 : to_values) + p.params(row_of(places[row]), is_key);
    const bool wanted = exists || places[row] == Keys::kNowhere;
    if (is_key)
      copy_few_async<kKeyParts * 4>(stage + kParams + row * kKeyParts * 4, from, wanted);
    else
      copy_few_async<4>(stage + kValueParams + row * 4, from, wanted);
  }

  /// A lane's part of query rows l/4 and, for kRows = 2, l/4 + 8, in the order in which it has a key's codes:
  /// as f16 in units of `unit`; turned in u4, which rounds them: 2^-11 of each, where a code is off by 2^-5.
  template <int kRows>
  struct QueryRows {
    static constexpr int kSteps = kDim / 16;
    uint32_t parts[kSteps][2 * kRows];
    float sums[kRows][kKeyParts], unit[kRows];

    __device__ QueryRows(const AttentionArgs& a, const AttentionTile& tile, const LaneRows& rows) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const std::byte* row = query_row(a, tile, rows, i);
        if constexpr (kBits == 8)
          read(row, i);
        else
          read_turned(row, i);
      }
    }
    template <int kCount>
    __device__ HalfRange range_of(const float (&x)[kCount]) const {
      float most = 0;
#pragma unroll
      for (int j = 0; j < kCount; ++j)
        if (fabsf(x[j]) < INFINITY) most = fmaxf(most, fabsf(x[j]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      return HalfRange(fmaxf(most, __shfl_xor_sync(~0u, most, 2)));
    }
    // Step s of a group of 64: elements 4s..4s+3 of the lane's 16.
    __device__ void read(const std::byte* row, int i) {
      float x[kDim / 4];
#pragma unroll
      for (int n = 0; n < kDim / 4; n += 2) {
        const int d = n / 16 * 64 + lane() % 4 * 16 + n % 16;
        const float2 pair = unpack<T>(row != nullptr ? *reinterpret_cast<const uint32_t*>(row + d * 2) : 0);
        x[n] = pair.x, x[n + 1] = pair.y;
      }
      const HalfRange range = range_of(x);
      float sum = 0;
#pragma unroll
      for (int n = 0; n < kDim / 4; n += 2) {
        const float first = __fmul_rn(x[n], range.factor), second = __fmul_rn(x[n + 1], range.factor);
        sum += first + second;
        parts[n / 4][n / 2 % 2 * kRows + i] = pack<__half>(first, second);
      }
      sums[i][0] = over_lanes(sum);
      unit[i] = range.inverse;
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
#pragma unroll
      for (float(&part)[kEach] : x) {
        turn_elements(part);  // the lane's, then with the other lanes that have the row
        turn_with_lane(part, 1);
        turn_with_lane(part, 2);
      }
      float most[2 * kEach];
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const float sum = x[0][j] + x[1][j], difference = x[0][j] - x[1][j];
        x[0][j] = most[2 * j] = sum, x[1][j] = most[2 * j + 1] = difference;
      }
      const HalfRange range = range_of(most);
      unit[i] = range.inverse / sqrtf(kDim);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kEach; ++j)
          sum += x[half][j] = __half2float(__float2half_rn(__fmul_rn(x[half][j], range.factor)));
        sums[i][half] = over_lanes(sum);
#pragma unroll
        for (int s = 0; s < kEach / 4; ++s)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd)
            parts[half * kEach / 4 + s][odd * kRows + i] =
                pack<__half>(x[half][4 * s + odd], x[half][4 * s + odd + 2]);
      }
    }
  };
  using Queries = QueryRows<2>;

  /// A row's product with a key, from its products with the codes.
  __device__ static float whole_product(const float (&products)[kKeyParts], const __half2* params,
                                        const float (&sums)[kKeyParts], float unit) {
    float total = 0;
#pragma unroll
    for (int part = 0; part < kKeyParts; ++part) {
      const float2 p = __half22float2(params[part]);
      const float product = __fmaf_rn(products[part], p.x, __fmul_rn(sums[part], p.y));
      total = part == 0 ? product : __fadd_rn(total, product);
    }
    return __fmul_rn(total, unit);
  }

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
            mma<__half>(products[0], q.parts[g * 4 + s], bytes_of(words.values[s], 0, 1),
                        bytes_of(words.values[s], 2, 3));
        }
      } else {
        constexpr int kWords = kDim / 32;
        const auto words = *reinterpret_cast<const Pack<uint32_t, kWords>*>(tile + key * kRowBytes +
                                                                            lane() % 4 * kWords * 4);
#pragma unroll
        for (int s = 0; s < kWords; ++s) {
          const uint32_t even = words.values[s], odd = even >> 8;
          uint32_t b0 = nibbles_of<false>(even), b1 = nibbles_of<false>(odd);
          mma<__half>(products[0], q.parts[s], b0, b1);
          b0 = nibbles_of<true>(even), b1 = nibbles_of<true>(odd);
          mma<__half>(products[1], q.parts[kWords + s], b0, b1);
        }
      }
      const auto params = *reinterpret_cast<const Pack<__half2, 2 * kKeyParts>*>(
          tile + kParams + of_scores * kKeyParts * KvLayout::kParamBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float both[kKeyParts];
        for (int part = 0; part < kKeyParts; ++part) both[part] = products[part][i];
        scores[n][i] = whole_product(both, params.values + i % 2 * kKeyParts, q.sums[i / 2], q.unit[i / 2]);
      }
    }
  }

  // A weight of 0 is none, be the value NaN.
  __device__ static float times(float weight, float factor) {
    return weight == 0 ? 0 : __fmul_rn(weight, factor);
  }
  template <typename OfSpan>
  __device__ static void weigh(OfSpan& sums, int i, float first, float second, const std::byte* tile, int key,
                               uint32_t& high, uint32_t& low) {
    const auto params =
        *reinterpret_cast<const Pack<__half2, 2>*>(tile + kValueParams + key * KvLayout::kParamBytes);
    const float2 a = __half22float2(params.values[0]), b = __half22float2(params.values[1]);
    sums.key_weights[i][0] = __fadd_rn(sums.key_weights[i][0], first);
    sums.key_weights[i][1] = __fadd_rn(sums.key_weights[i][1], second);
    sums.key_mins[i][0] = __fadd_rn(sums.key_mins[i][0], times(first, a.y));
    sums.key_mins[i][1] = __fadd_rn(sums.key_mins[i][1], times(second, b.y));
    high = pack<__half>(__fmul_rn(first, ValueScales::weight_factor(a.x)),
                        __fmul_rn(second, ValueScales::weight_factor(b.x)));
    low = 0;
  }

  /// Scale and min of a key's value.
  __device__ static float2 value_params(const std::byte* tile, int key) {
    return __half22float2(
        *reinterpret_cast<const __half2*>(tile + kValueParams + key * KvLayout::kParamBytes));
  }
  /// Of keys `key`, which is even, and key + 1.
  __device__ static ValueScales value_scales(const std::byte* tile, int key) {
    return ValueScales(
        *reinterpret_cast<const Pack<__half2, 2>*>(tile + kValueParams + key * KvLayout::kParamBytes));
  }

  /// Values of a word of two keys' codes: bytes 0 and 2, then in u4 their high bits, or with `odd` bytes 1
  /// and 3.
  template <bool kHigh>
  __device__ static uint32_t values_of(const ValueScales& scales, uint32_t word, bool odd,
                                       uint32_t zero = 0) {
    if constexpr (kBits == 8)
      return odd ? scales.of_bytes(word, 1, 3, zero) : scales.of_bytes(word, 0, 2, zero);
    else
      return scales.of_nibbles<kHigh>(odd ? word >> 8 : word, zero);
  }

  template <bool kEdge, int kCols>
  __device__ static void multiply_values(cuda::Sums<kCols>& sums, const uint32_t (&weights)[4],
                                         const uint32_t (&)[4], const std::byte* tile, int k, int first_n,
                                         const LaneRows&, int) {
    constexpr int kTiles = kCols / 8, kEach = kTiles < kOfChunk ? kTiles : kOfChunk;
    const int key = k * 16 + lane() % 16, lane_key = k * 16 + lane() % 4 * 2;
    const ValueScales scales[2] = {value_scales(tile, lane_key), value_scales(tile, lane_key + 8)};
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
          b[i] = which < 2 ? values_of<false>(scales[i], codes[i], which % 2 != 0)
                           : values_of<true>(scales[i], codes[i], which % 2 != 0);
        mma<__half>(sums.values[n + j], weights, b[0], b[1]);
      }
    }
  }

  // ---- with the cache's rows as the first factor and up to 8 query rows as the second one ----

  /// Starts a warp's copy of the keys or the values of a tile. The lane gives the places of its keys lane()
  /// and lane() + 32. `first`: that of the tile's first key if all rows follow it in its block, then codes of
  /// keys outside are what lies there, with scale and min 0; else -1.
  template <bool kKeys>
  __device__ static void load_part(const AttentionArgs& a, int kv_head, int64_t first,
                                   const int64_t (&places)[2], std::byte* stage) {
    constexpr int kRowsAtOnce = 32 / kChunks, kParts = kKeys ? kKeyParts : 1;
    const CodePlace& p = a.codes;
    const std::byte* cache = a.cache + (kKeys ? 0 : to_values(a, kv_head));
    const int lane_row = lane() / kChunks, c = lane() % kChunks;
    const auto to = [&](int row) {
      return stage + (kKeys ? key_chunk(row, c) : kCodesBytes / 16 + value_chunk(row, c)) * 16;
    };
    if (first >= 0) {
      const std::byte* from =
          cache + plane_of(first) + (int64_t{row_of(first)} + lane_row) * kRowBytes + c * 16;
#pragma unroll
      for (int row = 0; row < kTileKeys; row += kRowsAtOnce)
        copy_async(to(row + lane_row), from + row * kRowBytes, 16);
    } else {
#pragma unroll 1
      for (int row = 0; row < kTileKeys; row += kRowsAtOnce) {
        const int64_t place = __shfl_sync(~0u, row < 32 ? places[0] : places[1], row % 32 + lane_row);
        const bool exists = place >= 0;
        copy_async(to(row + lane_row),
                   exists ? cache + plane_of(place) + int64_t{row_of(place)} * kRowBytes + c * 16 : a.cache,
                   exists ? 16 : 0);
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t place = places[i];
      const std::byte* from = place >= 0 ? cache + plane_of(place) + p.params(row_of(place), kKeys)
                                         : reinterpret_cast<const std::byte*>(&kNaNs);
      copy_few_async<kParts * 4>(stage + (kKeys ? kParams : kValueParams) + (i * 32 + lane()) * kParts * 4,
                                 from, place != Keys::kOutside);
    }
  }

  /// What a lane multiplies its products with: of rows l%4*2 + {0, 1}.
  struct ProductUnits {
    float sums[2][kKeyParts], unit[2];
    __device__ explicit ProductUnits(const QueryRows<1>& q) {
      for (int i = 0; i < 2; ++i) {
        const int from = (lane() % 4 * 2 + i) * 4;
        unit[i] = __shfl_sync(~0u, q.unit[0], from);
        for (int part = 0; part < kKeyParts; ++part) sums[i][part] = __shfl_sync(~0u, q.sums[0][part], from);
      }
    }
  };

  /// Products of 16 keys, from `first_key` of the tile on, with the rows: of keys l/4 (scores[0], scores[1])
  /// and l/4 + 8 with rows l%4*2 + {0, 1}.
  __device__ static void multiply_keys_by_few(float (&scores)[4], const QueryRows<1>& q,
                                              const ProductUnits& units, const std::byte* tile, int first_key,
                                              uint32_t zero) {
    const int key = first_key + lane() / 4, other = key + 8;
    float products[kKeyParts][4] = {};
    if constexpr (kBits == 8) {
#pragma unroll
      for (int g = 0; g < kDim / 64; ++g) {
        const auto words = [&](int row) {
          return *reinterpret_cast<const Pack<uint32_t, 4>*>(tile + key_chunk(row, g * 4 + lane() % 4) * 16);
        };
        const auto a = words(key), b = words(other);
#pragma unroll
        for (int s = 0; s < 4; ++s) {
          const uint32_t codes[4] = {bytes_of(a.values[s], 0, 1, zero), bytes_of(b.values[s], 0, 1, zero),
                                     bytes_of(a.values[s], 2, 3, zero), bytes_of(b.values[s], 2, 3, zero)};
          mma<__half>(products[0], codes, q.parts[g * 4 + s][0], q.parts[g * 4 + s][1]);
        }
      }
    } else {
      constexpr int kWords = kDim / 32;
      const auto words = [&](int row) {
        return *reinterpret_cast<const Pack<uint32_t, kWords>*>(tile + row * kRowBytes +
                                                                lane() % 4 * kWords * 4);
      };
      const auto a = words(key), b = words(other);
      const auto multiply = [&]<bool kHigh>(std::bool_constant<kHigh>, int s) {
        const uint32_t codes[4] = {nibbles_of<kHigh>(a.values[s], zero), nibbles_of<kHigh>(b.values[s], zero),
                                   nibbles_of<kHigh>(a.values[s] >> 8, zero),
                                   nibbles_of<kHigh>(b.values[s] >> 8, zero)};
        constexpr int kFirst = kHigh ? kWords : 0;
        mma<__half>(products[kHigh], codes, q.parts[kFirst + s][0], q.parts[kFirst + s][1]);
      };
#pragma unroll
      for (int s = 0; s < kWords; ++s) {
        multiply(std::false_type{}, s);
        multiply(std::true_type{}, s);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto params = *reinterpret_cast<const Pack<__half2, kKeyParts>*>(
          tile + kParams + (half == 0 ? key : other) * kKeyParts * KvLayout::kParamBytes);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float both[kKeyParts];
        for (int part = 0; part < kKeyParts; ++part) both[part] = products[part][half * 2 + i];
        scores[half * 2 + i] = whole_product(both, params.values, units.sums[i], units.unit[i]);
      }
    }
  }

  /// values[m] += the tile's values of 16 keys, from 16 * k on, * their weights for the rows, [i] being of
  /// keys 8 * i on as mma() takes its second factor. values[m] has columns column_at(2 * m + {0, 1}, l/4) of
  /// rows l%4*2 + {0, 1}.
  __device__ static void multiply_values_by_few(float (&values)[kDim / 16][4], const uint32_t (&weights)[2],
                                                const std::byte* tile, int k, uint32_t zero) {
    const int key = k * 16 + lane() % 16, lane_key = k * 16 + lane() % 4 * 2;
    const ValueScales first = value_scales(tile, lane_key), second = value_scales(tile, lane_key + 8);
#pragma unroll
    for (int chunk = 0; chunk < kChunks; chunk += 2) {
      uint32_t words[4];  // of either chunk: keys 0 to 7 and 8 to 15
      load_transposed(words, tile + kCodesBytes + value_chunk(key, chunk + lane() / 16) * 16);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const auto multiply = [&]<bool kHigh>(std::bool_constant<kHigh>) {
          const uint32_t numbers[4] = {values_of<kHigh>(first, words[2 * c], false, zero),
                                       values_of<kHigh>(first, words[2 * c], true, zero),
                                       values_of<kHigh>(second, words[2 * c + 1], false, zero),
                                       values_of<kHigh>(second, words[2 * c + 1], true, zero)};
          mma<__half>(values[(chunk + c) * (kOfChunk / 2) + kHigh], numbers, weights[0], weights[1]);
        };
        multiply(std::false_type{});
        if constexpr (kBits == 4) multiply(std::true_type{});
      }
    }
  }
};

}  // namespace lmdeploy::cuda
