// The register tile of all matrix products: 16 rows of a panel times up to kTokenTile tokens.
#pragma once

#include "lmdeploy/kernels/cpu/isa/simd.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

// As many tokens as leave registers for the panel's column and one broadcast; products of floats, whose
// totals are seldom touched, take more: each panel comes from memory once for 16 tokens.
#if LMDEPLOY_ISA_LEVEL == 2
constexpr int kTokenTile = 12;
constexpr int kFloatTile = 16;
#elif LMDEPLOY_ISA_LEVEL == 1
constexpr int kTokenTile = 6;
constexpr int kFloatTile = kTokenTile;
#else
constexpr int kTokenTile = 3;
constexpr int kFloatTile = kTokenTile;
#endif

/// sums[t] += sum over k in [0, count) of panel[k] * x(k, t), k rising. Element (k, t) of x is x[k * T + t],
/// or with kRows x[t * kRows + k].
template <int T, int kRows = 0>
LMD_INLINE void add_products(Row16 (&sums)[T], const float* panel, int64_t panel_stride, const float* x,
                             int64_t count) {
#pragma GCC unroll 4
  for (int64_t k = 0; k < count; ++k) {
    const Row16 column = load16(panel + k * panel_stride);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) add_product(sums[t], column, kRows == 0 ? x[k * T + t] : x[t * kRows + k]);
  }
}

/// add_products from 0.
template <int T>
LMD_INLINE void multiply(Row16 (&sums)[T], const float* panel, int64_t panel_stride, const float* x,
                         int64_t count) {
  for (int t = 0; t < T; ++t) sums[t] = Row16{};
  add_products<T>(sums, panel, panel_stride, x, count);
}

/// First token of tile `tile` when `tokens` are dealt evenly to `num_tiles`.
LMD_INLINE int64_t tile_begin(int64_t tile, int64_t tokens, int64_t num_tiles) {
  return tile * tokens / num_tiles;
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
