// The ops that work row by row: norms, activations, rotations, conversions.
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

}  // namespace

void rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps, float offset) {
  VecF sum_sq{};
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF v = load(x + i, n - i);
    sum_sq = fma(v, v, sum_sq);
  }
  const float scale = 1 / __builtin_sqrtf(reduce_add(sum_sq) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; i += kLanes)
    store(out + i, load(x + i, n - i) * scale * (load(weight + i, n - i) + offset), n - i);
}

void silu_mul(float* out, const float* gate, const float* up, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF g = load(gate + i, n - i);
    store(out + i, g / (1.0f + exp(-g)) * load(up + i, n - i), n - i);
  }
}

void add(float* out, const float* a, const float* b, int64_t n) {
  for (int64_t i = 0; i < n; i += kLanes) store(out + i, load(a + i, n - i) + load(b + i, n - i), n - i);
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

void store_row(Kind kind, std::byte* dst, const float* src, int64_t n) {
  if (kind == Kind::kF32) {
    __builtin_memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
    return;
  }
  for (int64_t i = 0; i < n; i += kLanes) {
    const VecF v = load(src + i, n - i);
    store_halves(dst + i * 2, kind == Kind::kF16 ? f32_to_f16(v) : f32_to_bf16(v), n - i);
  }
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
