// Reads and writes weights as integer_weight.h says.
#pragma once

#include "lmdeploy/kernels/cuda/integer_weight.h"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {

/// Stands for a format where a float kind's element type does.
template <int kBitsOf, int kGroupOf, GroupScale kScaleOf>
struct Integers {
  static constexpr IntegerFormat kFormat = {kBitsOf, kGroupOf, kScaleOf};
  static constexpr int kBits = kBitsOf, kGroup = kGroupOf;
  static constexpr GroupScale kScale = kScaleOf;
  static constexpr int kUnitCols = kFormat.unit_cols(), kUnitCodes = kFormat.unit_codes(),
                       kUnitBytes = kFormat.unit_bytes();
  static constexpr int kGroups = kUnitCols / kGroup;  // of a unit
  static constexpr int kLoads = kUnitCodes / 512;     // of 16 bytes, that a lane needs for a unit
  static constexpr int kMiddle = kBits == 4 ? 8 : 128;
  static constexpr int kScaleBytes = bytes_of(kScale);
  /// Of a lane: those of its two rows, for each group.
  using Scales = Pack<uint16_t, kGroups * kScaleBytes>;

  /// Words of 32 bits with the integers of 8 consecutive columns of a row.
  static constexpr int kWords = kBits / 4;
  /// Within a unit: where the word with the integers of columns k to k + 8 (k is a multiple of 8) begins.
  __device__ static int word_at(int row, int k) {
    const int word = (k / 32 * 2 + row / 8) * kWords, lane = row % 8 * 4 + k % 32 / 8;
    return word / 4 * 512 + lane * 16 + word % 4 * 4;
  }
  __device__ static int scale_at(int row, int group) {
    return kUnitCodes + ((row % 8 * kGroups + group) * 2 + row / 8) * kScaleBytes;
  }
  /// Which four or eight bits of its words column k % 8 is: pairs of columns end in the halves of a word.
  __device__ static int bits_at(int column) {
    return kBits == 4 ? (column % 2 * 4 + column / 2) * 4 : column % 4 * 8;
  }
};

template <typename W>
constexpr bool kIsIntegers = false;
template <int kBits, int kGroup, GroupScale kScale>
constexpr bool kIsIntegers<Integers<kBits, kGroup, kScale>> = true;

template <typename Body, typename... Formats>
bool with_one_of(const IntegerFormat& format, const Body& body, Type<Formats>... formats) {
  const auto if_it_is = [&]<typename W>(Type<W> type) {
    if (format == W::kFormat) body(type);
    return format == W::kFormat;
  };
  return (if_it_is(formats) || ...);
}
/// body(Type<Integers<...>>()), which the format must be of kBits.
template <int kBits, typename Body>
void with_integers_of(const IntegerFormat& format, const Body& body) {
  constexpr auto kScale = GroupScale::kScale, kScaleZero = GroupScale::kScaleZero;
  bool found = false;
  if constexpr (kBits == 4)
    found = with_one_of(format, body, Type<Integers<4, 32, kScale>>(),
                        Type<Integers<4, 32, GroupScale::kScaleMin>>(), Type<Integers<4, 32, kScaleZero>>(),
                        Type<Integers<4, 128, kScaleZero>>());
  else
    found = with_one_of(format, body, Type<Integers<8, 32, kScale>>(), Type<Integers<8, 32, kScaleZero>>(),
                        Type<Integers<8, 64, kScaleZero>>(), Type<Integers<8, 64, GroupScale::kE4M3>>());
  LMD_CHECK(found, "no kernel for integers of ", format.bits, " bits in groups of ", format.group);
}
template <typename Body>
void with_integers(const IntegerFormat& format, const Body& body) {
  if (format.bits == 4)
    with_integers_of<4>(format, body);
  else
    with_integers_of<8>(format, body);
}

constexpr uint32_t kZeroBits = 511, kNaN = 0x7fc00000;

/// A group's scale and what its products are moved by: min, or zero.
struct ScaleAnd {
  float scale, other;
};
template <typename W>
__device__ ScaleAnd decode_scale(const void* at) {
  if constexpr (W::kScale == GroupScale::kScale) {
    return {__half2float(*static_cast<const __half*>(at)), W::kMiddle};
  } else if constexpr (W::kScale == GroupScale::kScaleMin) {
    const float2 both = __half22float2(*static_cast<const __half2*>(at));
    return {both.x, both.y};
  } else if constexpr (W::kScale == GroupScale::kE4M3) {
    return {*static_cast<const float*>(at), 0};
  } else {
    const uint32_t word = *static_cast<const uint32_t*>(at);
    return {__uint_as_float(word & ~kZeroBits), static_cast<float>(word & kZeroBits)};
  }
}

/// What is taken off integers before they are multiplied.
template <typename W>
__device__ uint32_t zero_of(const void* at) {
  if constexpr (W::kScale == GroupScale::kScaleZero) return *static_cast<const uint32_t*>(at) & kZeroBits;
  return W::kScale == GroupScale::kScale ? W::kMiddle : 0;
}

/// The value of a code of e4m3, by way of f16, whose exponents are biased by 8 more.
__device__ inline float e4m3_value(uint32_t code) {
  const auto bits = static_cast<unsigned short>((code & 0x80) << 8 | (code & 0x7f) << 7);
  return (code & 0x7f) == 0x7f ? __uint_as_float(kNaN) : __half2float(__ushort_as_half(bits)) * 256;
}

/// Eight integers of a group, or codes: w = scale * q + other where the kind has mins, else scale * (q -
/// other).
struct Codes {
  int q[8];
  float scale, other;
};

/// Columns k to k + 8 of `row`, the least possible integer being `lowest`. `row_bytes` is the format's.
template <typename W>
__device__ void store8_integers(std::byte* weight, int64_t row, int64_t row_bytes, int64_t k,
                                const Codes& codes, int lowest) {
  const int r = static_cast<int>(row % 16), at = static_cast<int>(k % W::kUnitCols);
  std::byte* unit = weight + row / 16 * 16 * row_bytes + k / W::kUnitCols * W::kUnitBytes;
  Pack<uint32_t, W::kWords> words = {};
  for (int j = 0; j < 8; ++j)
    words.values[j * W::kBits / 32] |= static_cast<uint32_t>(codes.q[j] - lowest) << W::bits_at(j);
  *reinterpret_cast<Pack<uint32_t, W::kWords>*>(unit + W::word_at(r, at)) = words;
  if (at % W::kGroup != 0) return;
  std::byte* group = unit + W::scale_at(r, at / W::kGroup);
  if constexpr (W::kScale == GroupScale::kScale) {
    *reinterpret_cast<__half*>(group) = __float2half_rn(codes.scale);
  } else if constexpr (W::kScale == GroupScale::kScaleMin) {
    *reinterpret_cast<__half2*>(group) = __floats2half2_rn(codes.scale, codes.other);
  } else if constexpr (W::kScale == GroupScale::kE4M3) {
    *reinterpret_cast<float*>(group) = codes.scale;
  } else {
    const uint32_t scale = isnan(codes.scale) ? kNaN : __float_as_uint(codes.scale) + (kZeroBits + 1) / 2;
    *reinterpret_cast<uint32_t*>(group) =
        (scale & ~kZeroBits) | static_cast<uint32_t>(static_cast<int>(codes.other) - lowest);
  }
}

/// w[j] = column k + j of `row`; k is a multiple of 8. `row_bytes` is the format's.
template <typename W>
__device__ void read8_integers(const std::byte* weight, int64_t row, int64_t row_bytes, int64_t k, float* w) {
  const int r = static_cast<int>(row % 16), at = static_cast<int>(k % W::kUnitCols);
  const std::byte* unit = weight + row / 16 * 16 * row_bytes + k / W::kUnitCols * W::kUnitBytes;
  const auto words = *reinterpret_cast<const Pack<uint32_t, W::kWords>*>(unit + W::word_at(r, at));
  const ScaleAnd group = decode_scale<W>(unit + W::scale_at(r, at / W::kGroup));
  for (int j = 0; j < 8; ++j) {
    const uint32_t stored = words.values[j * W::kBits / 32] >> W::bits_at(j) & ((1u << W::kBits) - 1);
    if constexpr (W::kScale == GroupScale::kE4M3) {
      w[j] = group.scale * e4m3_value(stored);
      continue;
    }
    const auto q = static_cast<float>(stored);
    w[j] = W::kScale == GroupScale::kScaleMin ? fmaf(group.scale, q, group.other)
                                              : group.scale * (q - group.other);
  }
}

}  // namespace lmdeploy::cuda
