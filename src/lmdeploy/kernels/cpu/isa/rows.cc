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
