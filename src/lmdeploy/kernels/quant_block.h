// One quantised block taken apart: the only place that knows the bit layouts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/core/half.h"

namespace lmdeploy {

/// How the elements of a quantised kind are made from integers: w = scale * q (+ min), or scale * (q - zero);
/// all but q hold for `group` consecutive elements. Where q are codes of e4m3, w = scale * value of q.
struct QuantKind {
  int bits;           // of a stored integer
  int bias;           // q = stored integer - bias
  int group;          // elements
  bool has_min;       // there is a min
  bool k_scales;      // scale = d * scales[g], min = -(dmin * mins[g]); else scale = d, min = dmin
  bool has_zero;      // scale = wide_scale, and there is a zero
  bool e4m3 = false;  // scale = wide_scale, and q are codes of 8-bit floats
};
/// `dtype` must be quantised.
const QuantKind& quant_kind(DType dtype);

/// The block's integers and scales as they are stored.
struct QuantBlock {
  std::array<int8_t, 256> q;      // [block_size]; the bias is taken off
  std::array<int8_t, 16> scales;  // k_scales only, [block_size / group]
  std::array<uint8_t, 16> mins;   // k_scales with a min
  F16 d;
  F16 dmin;
  float wide_scale;  // has_zero and e4m3 only
  int zero;          // has_zero only: 0 .. 2^bits; of bytes -128 .. 128

  float scale(const QuantKind& kind, int group) const;
  float min(const QuantKind& kind, int group) const;
};
QuantBlock read_quant_block(DType dtype, const std::byte* block);
/// Puts d, and dmin where the kind has one, into a stored block.
void write_block_scales(DType dtype, F16 d, F16 dmin, std::byte* block);
/// Integers in groups: the same.
void write_block_scales(float scale, int32_t zero, std::byte* block);
/// dst[0 .. size) in f32, as ggml rounds: one product, then one sum; (q - zero) is exact.
void dequantize_block(const QuantKind& kind, const QuantBlock& block, int64_t size, float* dst);

}  // namespace lmdeploy
