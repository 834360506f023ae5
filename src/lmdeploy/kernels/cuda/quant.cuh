// Reads weights of any kind, eight consecutive elements of a row at a time. Bit layouts: quant_block.cc; the
// results are bit-equal to dequantize(): of scale * q + min only the sum rounds, of scale * (q - zero) the
// product.
#pragma once

#include "lmdeploy/kernels/cuda/integer_weight.cuh"

namespace lmdeploy::cuda {

/// Stands for a quantised kind where a float kind's element type does.
template <DType kKind>
struct Quant {};

template <typename Body>
void with_quant(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kQ4_0:
      return body(Type<Quant<DType::kQ4_0>>());
    case DType::kQ4_1:
      return body(Type<Quant<DType::kQ4_1>>());
    case DType::kQ5_0:
      return body(Type<Quant<DType::kQ5_0>>());
    case DType::kQ5_1:
      return body(Type<Quant<DType::kQ5_1>>());
    case DType::kQ8_0:
      return body(Type<Quant<DType::kQ8_0>>());
    case DType::kQ4_K:
      return body(Type<Quant<DType::kQ4_K>>());
    case DType::kQ5_K:
      return body(Type<Quant<DType::kQ5_K>>());
    case DType::kQ6_K:
      return body(Type<Quant<DType::kQ6_K>>());
    case DType::kU4G32:
      return body(Type<Quant<DType::kU4G32>>());
    case DType::kU4G128:
      return body(Type<Quant<DType::kU4G128>>());
    case DType::kU5G32:
      return body(Type<Quant<DType::kU5G32>>());
    case DType::kI8G64:
      return body(Type<Quant<DType::kI8G64>>());
    case DType::kF8G64:
      return body(Type<Quant<DType::kF8G64>>());
    default:
      break;
  }
  throw Error(ErrorCode::kUnsupported, cat("the CUDA back end has no kernels for ", dtype, " weights"));
}
/// body(Type<W>()): W is Integers where the weight has that format, else a float type or a Quant.
template <typename Body>
void with_weight(DType dtype, const IntegerFormat& format, const Body& body) {
  if (format.exists()) return with_integers(format, body);
  if (is_quantized(dtype)) return with_quant(dtype, body);
  with_type(dtype, body);
}

__device__ inline float half_at(const uint8_t* p) {
  return __half2float(*reinterpret_cast<const __half*>(p));
}

template <DType kKind>
constexpr bool kHasMin =
    kKind == DType::kQ4_1 || kKind == DType::kQ5_1 || kKind == DType::kQ4_K || kKind == DType::kQ5_K;

template <DType kKind>
constexpr bool kInGroups = is_integer_group(kKind);
/// Eight bytes that begin where a load of kAlign bytes may.
template <int kAlign>
struct Bytes8 {
  uint8_t values[8];

  __device__ explicit Bytes8(const uint8_t* from) {
    using Word = std::conditional_t<kAlign == 8, uint2, uint16_t>;
    auto* to = reinterpret_cast<Word*>(values);
    for (int i = 0; i < 8 / static_cast<int>(sizeof(Word)); ++i)
      to[i] = reinterpret_cast<const Word*>(from)[i];
  }
};
/// The least integer.
template <DType kKind>
constexpr int kLowest = kKind == DType::kQ8_0 || kKind == DType::kI8G64 ? -128 : 0;

// d, perhaps min, perhaps 32 high bits, 32 integers.
template <DType kKind>
__device__ Codes codes_small(const uint8_t* p, int k) {
  constexpr bool kFive = kKind == DType::kQ5_0 || kKind == DType::kQ5_1;
  Codes codes;
  codes.scale = half_at(p);
  codes.other = kHasMin<kKind> ? half_at(p + 2) : kFive ? 16 : 8;
  p += kHasMin<kKind> ? 4 : 2;
  uint32_t high = 0;
  if constexpr (kFive) {
    high = (p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24) >> k;
    p += 4;
  }
  const Bytes8<2> bytes(p + k % 16);
  for (int j = 0; j < 8; ++j) {
    const int byte = bytes.values[j];
    codes.q[j] = k < 16 ? byte & 15 : byte >> 4;
    if constexpr (kFive) codes.q[j] |= static_cast<int>(high >> j & 1) << 4;
  }
  return codes;
}

// d, dmin, eight 6-bit scales and mins in 12 bytes, perhaps 256 high bits, 256 nibbles.
template <bool kFive>
__device__ Codes codes_k45(const uint8_t* p, int k) {
  const uint8_t* packed = p + 4;
  const int group = k / 32;
  int scale = packed[group & 3] & 63, min = packed[4 + (group & 3)] & 63;
  if (group >= 4) {
    const int both = packed[8 + group - 4];
    scale = (both & 15) | packed[group - 4] >> 6 << 4;
    min = both >> 4 | packed[group] >> 6 << 4;
  }
  Codes codes;
  codes.scale = half_at(p) * static_cast<float>(scale);
  codes.other = -(half_at(p + 2) * static_cast<float>(min));
  const Bytes8<8> high(p + 16 + k % 32), low(p + (kFive ? 48 : 16) + k / 64 * 32 + k % 32);
  for (int j = 0; j < 8; ++j) {
    codes.q[j] = k % 64 < 32 ? low.values[j] & 15 : low.values[j] >> 4;
    if constexpr (kFive) codes.q[j] |= (high.values[j] >> group & 1) << 4;
  }
  return codes;
}

__device__ inline Codes codes_k6(const uint8_t* p, int k) {
  const int half = k / 128, at = k % 128;
  const Bytes8<2> low(p + half * 64 + at % 64), high(p + 128 + half * 32 + at % 32);
  Codes codes;
  codes.scale = half_at(p + 208) * static_cast<float>(static_cast<int8_t>(p[192 + k / 16]));
  codes.other = 32;
  for (int j = 0; j < 8; ++j) {
    const int nibble = at < 64 ? low.values[j] & 15 : low.values[j] >> 4;
    codes.q[j] = nibble | (high.values[j] >> at / 32 * 2 & 3) << 4;
  }
  return codes;
}

__device__ inline Codes codes_q8(const uint8_t* p, int k) {
  Codes codes;
  codes.scale = half_at(p);
  codes.other = 0;
  const Bytes8<2> bytes(p + 2 + k);
  for (int j = 0; j < 8; ++j) codes.q[j] = static_cast<int8_t>(bytes.values[j]);
  return codes;
}

template <DType kKind>
__device__ Codes codes_ggml(const std::byte* row, int64_t k) {
  constexpr bool kLarge = kKind == DType::kQ4_K || kKind == DType::kQ5_K || kKind == DType::kQ6_K;
  constexpr int kSize = kLarge ? 256 : 32;
  constexpr int kBytes = kKind == DType::kQ4_0   ? 18
                         : kKind == DType::kQ4_1 ? 20
                         : kKind == DType::kQ5_0 ? 22
                         : kKind == DType::kQ5_1 ? 24
                         : kKind == DType::kQ8_0 ? 34
                         : kKind == DType::kQ4_K ? 144
                         : kKind == DType::kQ5_K ? 176
                                                 : 210;
  const auto* block = reinterpret_cast<const uint8_t*>(row) + k / kSize * kBytes;
  const int within = static_cast<int>(k % kSize);
  if constexpr (kKind == DType::kQ8_0)
    return codes_q8(block, within);
  else if constexpr (!kLarge)
    return codes_small<kKind>(block, within);
  else if constexpr (kKind == DType::kQ6_K)
    return codes_k6(block, within);
  else
    return codes_k45<kKind == DType::kQ5_K>(block, within);
}

// {f32 scale, i32 zero, integers}: blocks are multiples of 8 bytes, so that all reads are aligned.
template <DType kKind>
__device__ Codes codes_integer_group(const std::byte* row, int64_t k) {
  constexpr bool kNibbles = kKind == DType::kU4G32 || kKind == DType::kU4G128;
  constexpr int kSize = kKind == DType::kU4G128 ? 128 : kKind == DType::kI8G64 ? 64 : 32;
  constexpr int kBytes = 8 + (kNibbles ? kSize / 2 : kSize);
  const std::byte* block = row + k / kSize * kBytes;
  const auto head = *reinterpret_cast<const int2*>(block);
  const int at = static_cast<int>(k % kSize);
  uint32_t words[2];
  words[0] = *reinterpret_cast<const uint32_t*>(block + 8 + (kNibbles ? at / 2 : at));
  if constexpr (!kNibbles) words[1] = *reinterpret_cast<const uint32_t*>(block + 12 + at);
  Codes codes;
  codes.scale = __int_as_float(head.x);
  codes.other = static_cast<float>(head.y);
  for (int j = 0; j < 8; ++j) {
    if constexpr (kNibbles)
      codes.q[j] = static_cast<int>(words[0] >> 4 * j & 15);
    else if constexpr (kKind == DType::kI8G64)
      codes.q[j] = static_cast<int8_t>(words[j / 4] >> 8 * (j % 4));
    else
      codes.q[j] = static_cast<int>(words[j / 4] >> 8 * (j % 4) & 255);
  }
  return codes;
}

// {f32 scale, codes of e4m3}: blocks are multiples of 4 bytes.
__device__ inline Codes codes_e4m3(const std::byte* row, int64_t k) {
  const std::byte* block = row + k / 64 * 68;
  const auto* words = reinterpret_cast<const uint32_t*>(block + 4 + k % 64);
  Codes codes;
  codes.scale = *reinterpret_cast<const float*>(block);
  codes.other = 0;
  for (int j = 0; j < 8; ++j) codes.q[j] = static_cast<int>(words[j / 4] >> 8 * (j % 4) & 255);
  return codes;
}
/// Whether one of the 64 codes of column k's group is NaN.
__device__ inline bool has_nan(const std::byte* row, int64_t k) {
  const auto* words = reinterpret_cast<const uint32_t*>(row + k / 64 * 68 + 4);
  uint32_t nan = 0;
  for (int i = 0; i < 16; ++i) nan |= __vcmpeq4(words[i] & 0x7f7f7f7f, 0x7f7f7f7f);
  return nan != 0;
}

/// Of row[k .. k + 8); k is a multiple of 8.
template <DType kKind>
__device__ Codes codes_of(const std::byte* row, int64_t k, Quant<kKind>) {
  if constexpr (kInGroups<kKind>)
    return codes_integer_group<kKind>(row, k);
  else if constexpr (kKind == DType::kF8G64)
    return codes_e4m3(row, k);
  else
    return codes_ggml<kKind>(row, k);
}

/// w[j] = row[k + j]; k is a multiple of 8.
template <DType kKind>
__device__ void read8(const std::byte* row, int64_t k, float* w, Quant<kKind> kind) {
  const Codes codes = codes_of(row, k, kind);
  for (int j = 0; j < 8; ++j) {
    if constexpr (kKind == DType::kF8G64) {
      w[j] = codes.scale * e4m3_value(static_cast<uint32_t>(codes.q[j]));
      continue;
    }
    const auto q = static_cast<float>(codes.q[j]);
    w[j] = kHasMin<kKind> ? fmaf(codes.scale, q, codes.other) : codes.scale * (q - codes.other);
  }
}

/// Of a float kind: elements at `cols` and beyond are 0. `wide`: rows are whole 16-byte accesses.
template <typename T>
__device__ void read8(const T* row, int64_t k, int64_t cols, bool wide, float* w) {
  if (wide) {
    constexpr int kLoads = 8 / kWidth<T>;
    const auto* packs = reinterpret_cast<const Pack<T, kWidth<T>>*>(row + k);
    for (int i = 0; i < kLoads; ++i) {
      const auto pack = k + i * kWidth<T> < cols ? packs[i] : Pack<T, kWidth<T>>{};
      for (int j = 0; j < kWidth<T>; ++j) w[i * kWidth<T> + j] = to_float(pack.values[j]);
    }
    return;
  }
  for (int j = 0; j < 8; ++j) w[j] = k + j < cols ? to_float(row[k + j]) : 0.0f;
}
/// Columns k to k + 8 of a row of a weight of any kind. Of integers, `row_bytes` is the format's.
template <typename W>
__device__ void read8_weight(const std::byte* weight, int64_t row, int64_t row_bytes, int64_t k, int64_t cols,
                             bool wide, float* w) {
  if constexpr (kIsIntegers<W>)
    read8_integers<W>(weight, row, row_bytes, k, w);
  else if constexpr (std::is_empty_v<W>)
    read8(weight + row * row_bytes, k, w, W());
  else
    read8(reinterpret_cast<const W*>(weight + row * row_bytes), k, cols, wide, w);
}
__device__ inline void read8_any(const void* row, DType dtype, int64_t k, int64_t cols, bool wide, float* w) {
  if (dtype == DType::kF32)
    read8(static_cast<const float*>(row), k, cols, wide, w);
  else if (dtype == DType::kF16)
    read8(static_cast<const __half*>(row), k, cols, wide, w);
  else
    read8(static_cast<const __nv_bfloat16*>(row), k, cols, wide, w);
}

}  // namespace lmdeploy::cuda
