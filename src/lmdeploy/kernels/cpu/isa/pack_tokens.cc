// The tokens of a linear() in the forms that its products read (PackedTokens).
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// Sum of kSumGroup values, in one order for all callers.
LMD_INLINE float sum_group(const float* x) {
  VecF sum = load(x);
  for (int i = kLanes; i < kSumGroup; i += kLanes) sum += load(x + i);
  return reduce_add(sum);
}

/// dst[k * step] = row[k] / 16^(k % 8), but row[k] where k % 8 is 7. `cols` is a multiple of 8.
void pack_shifted(float* dst, int64_t step, const float* row, int64_t cols) {
  constexpr float kFactors[8] = {0x1p0f, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 0x1p0f};
  for (int64_t k = 0; k < cols; k += 8)
    for (int64_t j = 0; j < 8; ++j) dst[(k + j) * step] = row[k + j] * kFactors[j];
}

/// A value as bf16, to nearest even; NaN stays one.
LMD_INLINE uint32_t bf16_bits(float value) {
  uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return (bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40u : rounded;
}

/// dst[i * step] = columns 2i (in the lower half) and 2i + 1 of a row; 0 stands beside an odd last one.
void pack_pairs(uint32_t* dst, int64_t step, const float* row, int64_t cols) {
  for (int64_t i = 0; i < cols / 2; ++i)
    dst[i * step] = bf16_bits(row[2 * i]) | bf16_bits(row[2 * i + 1]) << 16;
  if (cols % 2 != 0) dst[cols / 2 * step] = bf16_bits(row[cols - 1]);
}

/// The largest magnitude of kSumGroup values; NaN where one is infinite or NaN.
LMD_INLINE float group_magnitude(const float* x) {
  VecI most{};  // magnitudes are in the order of their bits, with infinity and NaN at the end
  for (int i = 0; i < kSumGroup; i += kLanes) most = larger(bit_cast_to<VecI>(absolute(load(x + i))), most);
  const auto magnitude = bit_cast_to<float>(reduce_max(most));
  return magnitude + magnitude * 0.0f;
}

/// Words of four columns: the even ones, the odd ones of 8.
LMD_INLINE Bytes words_of(Bytes columns) {
  Bytes order;
  for (int i = 0; i < kByteColumns; ++i) order[i] = static_cast<uint8_t>(i / 8 * 8 + i % 4 * 2 + i / 4 % 2);
  return __builtin_shuffle(columns, order);
}

/// Without its last two bits, so that 1.5 times it is exact.
LMD_INLINE float short_scale(float scale) {
  uint32_t bits;
  __builtin_memcpy(&bits, &scale, sizeof(bits));
  return bit_cast_to<float>(bits & ~3u);
}

/// One group: its words go to dst, step bytes apart, with the bits of `flip` turned. Returns the scale.
LMD_INLINE float quantize_group(std::byte* dst, int64_t step, int32_t* sums, int64_t sum_step, const float* x,
                                uint8_t flip) {
  constexpr float kLeast = 0x1p-80f;  // below it 2^-23 of products could be subnormal: groups count as 0
  const float magnitude = group_magnitude(x);
  const VecF inverse = splat(magnitude >= kLeast ? 127 / magnitude : 0.0f);
  int8_t q[kSumGroup];
  for (int half = 0; half < 2; ++half) {
    VecI sum{};
    for (int i = half * 16; i < half * 16 + 16; i += kLanes) {
      const VecI whole = round_to_int(load(x + i) * inverse);
      sum += whole;
      store_as(q + i, __builtin_convertvector(whole, VecI8));
    }
    sums[half * sum_step] = reduce_add(sum);
  }
  for (int i = 0; i < kSumGroup; i += kByteColumns) store_as(q + i, words_of(load_as<Bytes>(q + i)) ^ flip);
  for (int word = 0; word < kSumGroup / 4; ++word) __builtin_memcpy(dst + word * step, q + word * 4, 4);
  return magnitude < kLeast ? 0 : short_scale(magnitude / 127);
}

/// A tile of `size` tokens whose first element is `begin` in each form, group after group: what is written
/// lies together.
void pack_int8(const PackedTokens& packed, int64_t begin, int64_t size, const float* x, int64_t stride) {
  const int64_t num_groups = packed.cols / kSumGroup;
  std::byte* q = reinterpret_cast<std::byte*>(packed.q + begin * packed.cols);
  float* scales = packed.q_scales + 2 * begin * num_groups;
  float* sums = packed.sums + begin * num_groups;
  int32_t* q_sums = packed.q_sums + begin * num_groups * 2;
  for (int64_t g = 0; g < num_groups; ++g) {
    for (int64_t t = 0; t < size; ++t) {
      int32_t* q_sum = q_sums + 2 * g * size + t;
      const float scale = quantize_group(q + g * kSumGroup * size + t * 4, 4 * size, q_sum, size,
                                         x + t * stride + g * kSumGroup, packed.q_unsigned ? 0x80 : 0);
      scales[2 * g * size + t] = scale;
      scales[(2 * g + 1) * size + t] = -1.5f * scale;
      sums[g * size + t] = 0x1p-23f * scale * static_cast<float>(q_sum[0] + q_sum[size]);
    }
  }
}

}  // namespace

void pack_tokens(const PackedTokens& packed, const float* x, int64_t stride, int64_t first_tile,
                 int64_t end_tile) {
  const int64_t cols = packed.cols;
  const int64_t num_sums = cols / kSumGroup;
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t begin = tile_begin(tile, packed.tokens, packed.num_tiles);
    const int64_t size = tile_begin(tile + 1, packed.tokens, packed.num_tiles) - begin;
    if (packed.q != nullptr) pack_int8(packed, begin, size, x + begin * stride, stride);
    for (int64_t t = 0; t < size; ++t) {
      const float* row = x + (begin + t) * stride;
      if (packed.x != nullptr) {
        float* dst = packed.x + begin * cols + t;
        for (int64_t k = 0; k < cols; ++k) dst[k * size] = row[k];
      }
      if (packed.shifted_x != nullptr) pack_shifted(packed.shifted_x + begin * cols + t, size, row, cols);
      if (packed.pairs != nullptr) pack_pairs(packed.pairs + begin * packed.num_pairs() + t, size, row, cols);
      if (packed.q == nullptr && packed.sums != nullptr) {
        float* dst = packed.sums + begin * num_sums + t;
        for (int64_t g = 0; g < num_sums; ++g) dst[g * size] = sum_group(row + g * kSumGroup);
      }
    }
  }
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
