// The loops around a way of multiplying, a struct Product:
//   stream<P, T>(range, panel, token)               P panels times a tile of T tokens, decoded in registers
//   panels_at_once(tokens)                          P
// Each tile of tokens decodes the panels anew, out of the cache: on all instruction sets that takes less time
// than a block that is decoded once and stored.
#pragma once

#include "lmdeploy/kernels/cpu/isa.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// With a bias, or fewer rows than a panel has.
void write_part(const float* bias, float* out, int64_t n, const float* total) {
  for (int64_t i = 0; i < n; i += kLanes) {
    VecF v = load(total + i);
    if (bias != nullptr) v += load(bias + i, n - i);
    store(out + i, v, n - i);
  }
}

/// Those of P panels and T tokens.
template <int P, int T>
LMD_INLINE void write_totals(const LinearRange& r, int64_t first_panel, int64_t first_token,
                             const Row16 (&totals)[P][T]) {
  for (int p = 0; p < P; ++p) {
    const int64_t row = (first_panel + p) * kPanelRows;
    const int64_t n = r.rows - row < kPanelRows ? r.rows - row : kPanelRows;
    float* out = r.out + first_token * r.out_stride + row;
    if (n == kPanelRows && r.bias == nullptr) {
#pragma GCC unroll 1  // unrolled, totals take the registers of AVX2's products: 5 and 6 tokens 10 % slower
      for (int t = 0; t < T; ++t) store16(out + t * r.out_stride, totals[p][t]);
      continue;
    }
    const float* bias = r.bias == nullptr ? nullptr : r.bias + row;
    for (int t = 0; t < T; ++t) {
      float total[kPanelRows];
      store16(total, totals[p][t]);
      write_part(bias, out + t * r.out_stride, n, total);
    }
  }
}

/// Panels side by side: enough that the additions of different sums hide each other's latency.
constexpr int plain_panels_at_once(int tokens) {
  const int vectors = tokens == 1 ? 4 : 8;  // of sums; more spill
  return vectors < kVecs * tokens ? 1 : vectors / (kVecs * tokens);
}

/// Product::stream for T = `tile_tokens`, which is in [1, kMax]: up to panels_at_once, returns how many.
template <class Product, int kMax>
LMD_INLINE int64_t stream_tile_of(int64_t tile_tokens, const LinearRange& r, int64_t panel, int64_t end_panel,
                                  int64_t first_token) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return stream_tile_of<Product, kMax - 1>(tile_tokens, r, panel, end_panel, first_token);
  }
  constexpr int kAtOnce = Product::panels_at_once(kMax);
  if (end_panel - panel < kAtOnce) {
    Product::template stream<1, kMax>(r, panel, first_token);
    return 1;
  }
  Product::template stream<kAtOnce, kMax>(r, panel, first_token);
  return kAtOnce;
}

/// Some panels times the tiles [first_tile, end_tile): the first tile brings the panels into the cache.
template <class Product>
void multiply_tiles(const LinearRange& r, int64_t first_panel, int64_t end_panel, int64_t first_tile,
                    int64_t end_tile) {
  const PackedTokens& tokens = r.tokens;
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
    const int64_t size = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles) - token;
    for (int64_t panel = first_panel; panel < end_panel;)
      panel += stream_tile_of<Product, kTokenTile>(size, r, panel, end_panel, token);
  }
}

template <class Product>
void linear_range(const LinearRange& r) {
  // Panels that all tiles of a chunk are multiplied with: a multiple of panels_at_once where tiles are
  // several.
  const int64_t together = r.tokens.num_tiles == 1 ? r.num_panels : 6;
  constexpr int64_t kChunk = 128;  // tokens: what the cache holds of them
  constexpr int64_t kTiles = (kChunk + kTokenTile - 1) / kTokenTile;
  for (int64_t tile = 0; tile < r.tokens.num_tiles; tile += kTiles) {
    const int64_t end_tile = r.tokens.num_tiles - tile < kTiles ? r.tokens.num_tiles : tile + kTiles;
    for (int64_t panel = 0; panel < r.num_panels; panel += together) {
      const int64_t end_panel = r.num_panels - panel < together ? r.num_panels : panel + together;
      multiply_tiles<Product>(r, panel, end_panel, tile, end_tile);
    }
  }
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
