// The ops that work row by row: norms, rotations, conversions.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/simd.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

template <class V>
LMD_INLINE void store_halves(std::byte* dst, V v, int64_t n) {
  __builtin_memcpy(dst, &v, n < kLanes ? static_cast<size_t>(n) * 2 : sizeof(V));
}

void rope_halves(float* head, const float* table, int64_t half) {
  for (int64_t j = 0, n = half; j < half; j += kLanes, n -= kLanes) {
    const VecF a = load(head + j, n);
    const VecF b = load(head + half + j, n);
    const VecF cos = load(table + j, n);
    const VecF sin = load(table + half + j, n);
    store(head + j, fma(a, cos, -(b * sin)), n);
    store(head + half + j, fma(b, cos, a * sin), n);
  }
}

void rope_pairs(float* head, const float* table, int64_t half) {
  for (int64_t j = 0; j < half; ++j) {
    const float a = head[2 * j];
    const float b = head[2 * j + 1];
    head[2 * j] = a * table[j] - b * table[half + j];
    head[2 * j + 1] = b * table[j] + a * table[half + j];
  }
}

/// One run: in LayerNorm's form the mean is taken off in a pass of its own, so that no digits cancel.
template <bool kCentred, bool kBias>
LMD_INLINE void norm_run(const NormRow& r, int64_t first, const float* weight, const float* bias) {
  const float* x = r.x + first;
  float* out = r.out + first;
  const int64_t n = r.size;
  const auto count = static_cast<float>(n);
  float mean = 0;
  if constexpr (kCentred) {
    VecF sum{};
    for (int64_t i = 0; i < n; i += kLanes) sum += load(x + i, n - i);
    mean = reduce_add(sum) / count;
  }
  VecF sum_sq{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const VecF v = load(x + i) - mean;
    sum_sq = fma(v, v, sum_sq);
  }
  if (i < n) {
    const VecF v = lane_index() < static_cast<int32_t>(n - i) ? load(x + i, n - i) - mean : VecF{};
    sum_sq = fma(v, v, sum_sq);
  }
  const float scale = 1 / __builtin_sqrtf(reduce_add(sum_sq) / count + r.eps);
  for (i = 0; i < n; i += kLanes) {
    const VecF w = load(weight + i, n - i) + r.offset;
    VecF v = (load(x + i, n - i) - mean) * scale * w;
    if constexpr (kBias) v += load(bias + i, n - i);
    store(out + i, v, n - i);
  }
}

template <bool kCentred, bool kBias>
void norm_runs(const NormRow& r) {
  for (int64_t run = 0; run < r.runs; ++run)
    norm_run<kCentred, kBias>(r, run * r.size, r.weight + run * r.weight_step,
                              kBias ? r.bias + run * r.weight_step : nullptr);
}

constexpr uint16_t kF16NaN = 0x7e00;

/// The nearest f16 within its range.
LMD_INLINE uint16_t to_f16_in_range(float value) {
  const VecF most = splat(65504);
  return f32_to_f16(larger(-most, smaller(most, splat(value))))[0];
}
LMD_INLINE float to_f32(uint16_t f16) { return f16_to_f32(VecU16{} + f16)[0]; }

LMD_INLINE void store_params(std::byte* params, uint16_t scale, uint16_t min) {
  const uint16_t both[2] = {scale, min};
  __builtin_memcpy(params, both, sizeof(both));
}

/// How the elements of one row become codes.
struct Encoding {
  float min;
  float inverse;  // of the scale; 0: all codes are 0
  float max_code;

  LMD_INLINE VecI operator()(VecF v) const {
    const VecF code = larger((v - min) * inverse, splat(0));  // NaN becomes 0
    return round_to_int(smaller(code, splat(max_code)));
  }
};

/// Finds the scale and min of a row and writes them to `params`.
Encoding choose_encoding(std::byte* params, const float* src, int64_t n, float max_code) {
  if (n == 0) {
    store_params(params, 0, 0);
    return {0, 0, max_code};
  }
  VecF least = splat(src[0]), most = least, broken{};
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF v = i + kLanes <= n                              ? load(src + i)
                   : lane_index() < static_cast<int32_t>(n - i) ? load(src + i, n - i)
                                                                : splat(src[0]);
    least = smaller(v, least);
    most = larger(v, most);
    broken += v - v;  // NaN where v is NaN or infinite
  }
  if (reduce_add(broken) != 0) {
    store_params(params, kF16NaN, kF16NaN);
    return {0, 0, max_code};
  }
  const uint16_t min_bits = to_f16_in_range(0.0f - reduce_max(-least));  // never -0
  const float min = to_f32(min_bits);
  const float range = reduce_max(most) - min;
  const uint16_t scale_bits = to_f16_in_range(range > 0 ? range / max_code : 0);
  const float scale = to_f32(scale_bits);
  store_params(params, scale_bits, min_bits);
  return {min, scale > 0 ? 1 / scale : 0, max_code};
}

/// The pairs (a, b) of lanes i and i + kDistance become (a + b, a - b).
template <int kDistance>
LMD_INLINE VecF butterfly(VecF v) {
  const VecF other = swap_lanes<kDistance>(v);
  return (lane_index() & kDistance) != 0 ? other - v : other + v;
}

LMD_INLINE void store_bytes(std::byte* dst, VecI v, int64_t n) {
  const VecU8 bytes = __builtin_convertvector(v, VecU8);
  __builtin_memcpy(dst, &bytes, n < kLanes ? static_cast<size_t>(n) : sizeof(bytes));
}

}  // namespace

void norm(const NormRow& row) {
  if (row.centred) return row.bias == nullptr ? norm_runs<true, false>(row) : norm_runs<true, true>(row);
  return row.bias == nullptr ? norm_runs<false, false>(row) : norm_runs<false, true>(row);
}

void rope(float* x, const float* table, int64_t heads, int64_t head_dim, int64_t half, bool interleaved) {
  for (int64_t head = 0; head < heads; ++head, x += head_dim) {
    if (interleaved) {
      rope_pairs(x, table, half);
    } else {
      rope_halves(x, table, half);
    }
  }
}

void store_row(CacheKind kind, std::byte* dst, const float* src, int64_t n) {
  if (kind == CacheKind::kF32) {
    __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF v = load(src + i, n - i);
    store_halves(dst + i * 2, kind == CacheKind::kF16 ? f32_to_f16(v) : f32_to_bf16(v), n - i);
  }
}

void quantize_row(CacheKind kind, std::byte* codes, std::byte* params, const float* src, int64_t n,
                  int64_t parts) {
  if (kind == CacheKind::kU8) {
    const Encoding encode = choose_encoding(params, src, n, 255);
    for (int64_t i = 0; i < n; i += kLanes) store_bytes(codes + i, encode(load(src + i, n - i)), n - i);
    return;
  }
  const int64_t half = (n + 1) / 2;
  const Encoding encode_low = choose_encoding(params, src, parts == 1 ? n : half, 15);
  const Encoding encode_high =
      parts == 1 ? encode_low : choose_encoding(params + 4, src + half, n - half, 15);
  for (int64_t i = 0; i < half; i += kLanes) {
    const VecI in_row = lane_index() < static_cast<int32_t>(n - half - i);
    const VecI high = encode_high(load(src + half + i, n - half - i)) & in_row;
    store_bytes(codes + i, encode_low(load(src + i, half - i)) | (high << 4), half - i);
  }
}

void turn_row(float* dst, const float* src, int64_t n, int64_t run) {
  for (int64_t i = 0; i < n; i += kLanes) {
    VecF v = load(src + i, n - i);
    if (run > 1) v = butterfly<1>(v);
    if (run > 2) v = butterfly<2>(v);
    if constexpr (kLanes > 4)
      if (run > 4) v = butterfly<4>(v);
    if constexpr (kLanes > 8)
      if (run > 8) v = butterfly<8>(v);
    store(dst + i, v, n - i);
  }
  for (int64_t h = kLanes; h < run; h *= 2) {
    for (int64_t i = 0; i < n; i += i % (2 * h) == h - kLanes ? h + kLanes : kLanes) {
      const VecF a = load(dst + i);
      const VecF b = load(dst + i + h);
      store(dst + i, a + b);
      store(dst + i + h, a - b);
    }
  }
  const float scale = 1 / __builtin_sqrtf(static_cast<float>(run));
  for (int64_t i = 0; i < n; i += kLanes) store(dst + i, load(dst + i, n - i) * scale, n - i);
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
