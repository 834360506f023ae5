// Takes quantised blocks apart. Layouts: ggml-common.h (`block_q4_0` ...); formulas: dequantize_row_* of
// ggml.
#include "lmdeploy/kernels/quant_block.h"

#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr QuantKind kQ4_0 = {
    .bits = 4, .bias = 8, .group = 32, .has_min = false, .k_scales = false, .has_zero = false};
constexpr QuantKind kQ4_1 = {
    .bits = 4, .bias = 0, .group = 32, .has_min = true, .k_scales = false, .has_zero = false};
constexpr QuantKind kQ5_0 = {
    .bits = 5, .bias = 16, .group = 32, .has_min = false, .k_scales = false, .has_zero = false};
constexpr QuantKind kQ5_1 = {
    .bits = 5, .bias = 0, .group = 32, .has_min = true, .k_scales = false, .has_zero = false};
constexpr QuantKind kQ8_0 = {
    .bits = 8, .bias = 0, .group = 32, .has_min = false, .k_scales = false, .has_zero = false};
constexpr QuantKind kQ4_K = {
    .bits = 4, .bias = 0, .group = 32, .has_min = true, .k_scales = true, .has_zero = false};
constexpr QuantKind kQ5_K = {
    .bits = 5, .bias = 0, .group = 32, .has_min = true, .k_scales = true, .has_zero = false};
constexpr QuantKind kQ6_K = {
    .bits = 6, .bias = 32, .group = 16, .has_min = false, .k_scales = true, .has_zero = false};
constexpr QuantKind integer_group(int bits, int group) {
  return {.bits = bits, .bias = 0, .group = group, .has_min = false, .k_scales = false, .has_zero = true};
}
constexpr QuantKind kU4G32 = integer_group(4, 32), kU4G128 = integer_group(4, 128);
constexpr QuantKind kU5G32 = integer_group(5, 32), kI8G64 = integer_group(8, 64);

constexpr QuantKind kF8G64 = {
    .bits = 8, .bias = 0, .group = 64, .has_min = false, .k_scales = false, .has_zero = false, .e4m3 = true};

constexpr int kQ6_KScale = 208;  // bytes before d

uint8_t byte_at(const std::byte* p, int i) { return static_cast<uint8_t>(p[i]); }

F16 f16_at(const std::byte* p, int offset) {
  F16 value;
  std::memcpy(&value, p + offset, sizeof(value));
  return value;
}

uint8_t bit(const std::byte* bits, int i) { return (byte_at(bits, i / 8) >> (i % 8)) & 1; }

// The 32-element kinds: d, perhaps min, perhaps 32 high bits, then the low bits.
void read_small(DType dtype, const QuantKind& kind, const std::byte* p, QuantBlock& block) {
  block.d = f16_at(p, 0);
  p += 2;
  if (kind.has_min) {
    block.dmin = f16_at(p, 0);
    p += 2;
  }
  if (dtype == DType::kQ8_0) {
    std::memcpy(block.q.data(), p, 32);
    return;
  }
  const std::byte* high = p;
  if (kind.bits == 5) p += 4;
  int8_t* q = block.q.data();
  for (int i = 0; i < 16; ++i) {  // element i is the low nibble of byte i, element 16 + i its high nibble
    q[i] = static_cast<int8_t>((byte_at(p, i) & 15) - kind.bias);
    q[16 + i] = static_cast<int8_t>((byte_at(p, i) >> 4) - kind.bias);
  }
  for (int i = 0; kind.bits == 5 && i < 32; ++i) q[i] = static_cast<int8_t>(q[i] + (bit(high, i) << 4));
}

// Eight 6-bit scales and mins in 12 bytes: 0-3 in the low bits of bytes 0-3 and 4-7; 4-7 have their low four
// bits in bytes 8-11 and their high two in the top of bytes 0-3 and 4-7.
void read_scales_and_mins(const std::byte* p, QuantBlock& block) {
  for (int i = 0; i < 4; ++i) {
    const auto at = static_cast<size_t>(i);
    const int both = byte_at(p, 8 + i);
    block.scales[at] = static_cast<int8_t>(byte_at(p, i) & 63);
    block.mins[at] = byte_at(p, 4 + i) & 63;
    block.scales[at + 4] = static_cast<int8_t>((both & 15) | ((byte_at(p, i) >> 6) << 4));
    block.mins[at + 4] = static_cast<uint8_t>((both >> 4) | ((byte_at(p, 4 + i) >> 6) << 4));
  }
}

// Q4_K and Q5_K: d, dmin, scales and mins, high bits (Q5_K: bit g of byte i belongs to element 32 g + i), and
// nibbles in runs of 64 elements: 32 low ones, then the 32 high ones of the same bytes.
void read_q45_k(const QuantKind& kind, const std::byte* p, QuantBlock& block) {
  block.d = f16_at(p, 0);
  block.dmin = f16_at(p, 2);
  read_scales_and_mins(p + 4, block);
  const std::byte* high = p + 16;
  const std::byte* low = kind.bits == 5 ? high + 32 : high;
  for (int run = 0; run < 4; ++run) {
    int8_t* q = block.q.data() + 64 * run;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<int8_t>(byte_at(low, 32 * run + i) & 15);
      q[32 + i] = static_cast<int8_t>(byte_at(low, 32 * run + i) >> 4);
    }
    for (int i = 0; kind.bits == 5 && i < 32; ++i) {
      q[i] = static_cast<int8_t>(q[i] | (byte_at(high, i) >> (2 * run) & 1) << 4);
      q[32 + i] = static_cast<int8_t>(q[32 + i] | (byte_at(high, i) >> (2 * run + 1) & 1) << 4);
    }
  }
}

// Q6_K: low nibbles (128 bytes), high bit pairs (64), signed scales (16), d. Halves of 128 elements: elements
// 0-63 are the low nibbles of the half's 64 bytes, 64-127 the high ones; pair j of high byte i is of 32 j +
// i.
void read_q6_k(const QuantKind& kind, const std::byte* p, QuantBlock& block) {
  for (int half = 0; half < 2; ++half) {
    for (int pair = 0; pair < 4; ++pair) {
      const std::byte* low = p + half * 64 + pair % 2 * 32;
      const std::byte* high = p + 128 + half * 32;
      int8_t* q = block.q.data() + 128 * half + 32 * pair;
      for (int i = 0; i < 32; ++i) {
        const int nibble = byte_at(low, i) >> (pair / 2 * 4) & 15;
        q[i] = static_cast<int8_t>((nibble | (byte_at(high, i) >> (2 * pair) & 3) << 4) - kind.bias);
      }
    }
  }
  std::memcpy(block.scales.data(), p + 192, 16);
  block.d = f16_at(p, kQ6_KScale);
}

// {f32 scale, i32 zero, integers}: nibbles or bytes.
void read_integer_group(const QuantKind& kind, const std::byte* p, QuantBlock& block) {
  std::memcpy(&block.wide_scale, p, sizeof(float));
  std::memcpy(&block.zero, p + 4, sizeof(int32_t));
  p += 8;
  for (int i = 0; i < kind.group; ++i) {
    const int stored = kind.bits == 4 ? byte_at(p, i / 2) >> (i % 2 * 4) & 15 : byte_at(p, i);
    block.q[static_cast<size_t>(i)] = static_cast<int8_t>(stored);
  }
}

}  // namespace

const QuantKind& quant_kind(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return kQ4_0;
    case DType::kQ4_1:
      return kQ4_1;
    case DType::kQ5_0:
      return kQ5_0;
    case DType::kQ5_1:
      return kQ5_1;
    case DType::kQ8_0:
      return kQ8_0;
    case DType::kQ4_K:
      return kQ4_K;
    case DType::kQ5_K:
      return kQ5_K;
    case DType::kQ6_K:
      return kQ6_K;
    case DType::kU4G32:
      return kU4G32;
    case DType::kU4G128:
      return kU4G128;
    case DType::kU5G32:
      return kU5G32;
    case DType::kI8G64:
      return kI8G64;
    case DType::kF8G64:
      return kF8G64;
    default:
      break;
  }
  LMD_CHECK(false, to_string(dtype), " is not quantised");
}

float QuantBlock::scale(const QuantKind& kind, int group) const {
  if (kind.has_zero || kind.e4m3) return wide_scale;
  const float step = to_float(d);
  return kind.k_scales ? step * static_cast<float>(scales[static_cast<size_t>(group)]) : step;
}

float QuantBlock::min(const QuantKind& kind, int group) const {
  const float step = to_float(dmin);
  return kind.k_scales ? -(step * static_cast<float>(mins[static_cast<size_t>(group)])) : step;
}

QuantBlock read_quant_block(DType dtype, const std::byte* bytes) {
  const QuantKind& kind = quant_kind(dtype);
  QuantBlock block{};
  if (kind.e4m3) {
    std::memcpy(&block.wide_scale, bytes, sizeof(float));
    std::memcpy(block.q.data(), bytes + sizeof(float), static_cast<size_t>(kind.group));
  } else if (kind.has_zero) {
    read_integer_group(kind, bytes, block);
  } else if (dtype == DType::kQ6_K) {
    read_q6_k(kind, bytes, block);
  } else if (kind.k_scales) {
    read_q45_k(kind, bytes, block);
  } else {
    read_small(dtype, kind, bytes, block);
  }
  return block;
}

void write_block_scales(DType dtype, F16 d, F16 dmin, std::byte* block) {
  std::memcpy(block + (dtype == DType::kQ6_K ? kQ6_KScale : 0), &d, sizeof(d));
  if (quant_kind(dtype).has_min) std::memcpy(block + sizeof(d), &dmin, sizeof(dmin));
}

void write_block_scales(float scale, int32_t zero, std::byte* block) {
  std::memcpy(block, &scale, sizeof(scale));
  std::memcpy(block + sizeof(scale), &zero, sizeof(zero));
}

}  // namespace lmdeploy
