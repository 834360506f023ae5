// The loops around a way of multiplying, a struct Product:
//   stream<P, T>(range, panel, token, ahead)        P panels times a tile of T tokens, decoded in registers
//   panels_at_once(tokens)                          P
//   kAsksAhead                                      whether it asks for `ahead`
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

/// What a stream in bytes asks for while it multiplies, a share with each of its groups: panels after its
/// own, for the second cache.
struct Ahead {
  const std::byte* next = nullptr;  // nullptr: its own bytes instead, a little further on
  const std::byte* end = nullptr;

  LMD_INLINE void ask(int64_t bytes) {
    const std::byte* until = end - next < bytes ? end : next + bytes;
    for (; next < until; next += 64) __builtin_prefetch(next, 0, 2);
  }
};

/// Product::stream for T = `tile_tokens`, which is in [1, kMax]: up to panels_at_once, returns how many.
template <class Product, int kMax>
LMD_INLINE int64_t stream_tile_of(int64_t tile_tokens, const LinearRange& r, int64_t panel, int64_t end_panel,
                                  int64_t first_token, Ahead& ahead) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return stream_tile_of<Product, kMax - 1>(tile_tokens, r, panel, end_panel, first_token, ahead);
  }
  constexpr int kAtOnce = Product::panels_at_once(kMax);
  if (end_panel - panel < kAtOnce) {
    Product::template stream<1, kMax>(r, panel, first_token, ahead);
    return 1;
  }
  Product::template stream<kAtOnce, kMax>(r, panel, first_token, ahead);
  return kAtOnce;
}

/// The panels [first_panel, end_panel) times the tiles [first_tile, end_tile). If only the first tile read
/// memory, it would wait for it and memory would rest meanwhile: all ask for a share of the panels that come
/// after, but for the first panels of a range.
template <class Product>
void multiply_tiles(const LinearRange& r, int64_t first_panel, int64_t end_panel, int64_t first_tile,
                    int64_t end_tile) {
  const PackedTokens& tokens = r.tokens;
  const int64_t together = end_panel - first_panel, after = r.num_panels - end_panel;
  const int64_t num_next = together < after ? together : after;
  const std::byte* next = r.panels + end_panel * r.panel_bytes;
  const std::byte* end = next + num_next * r.panel_bytes;
  bool is_cached = first_panel > 0;
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
    const int64_t size = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles) - token;
    Ahead ahead;
    if (Product::kAsksAhead && is_cached) {
      ahead = {next, next + (end - next) / (end_tile - tile)};
      next = ahead.end;
    }
    for (int64_t panel = first_panel; panel < end_panel;)
      panel += stream_tile_of<Product, kTokenTile>(size, r, panel, end_panel, token, ahead);
    is_cached = true;
  }
}

/// Panels that all tiles of a chunk are multiplied with before the next ones. Where tiles ask for the next
/// ones, as few as tiles of both sizes take side by side. Tokens in floats are too long for the cache if they
/// are read for each panel (bf16 4 to 9 % slower).
template <class Product>
int64_t panels_together(const PackedTokens& tokens) {
  if (tokens.num_tiles == 1) return INT64_MAX;
  if (!Product::kAsksAhead) return kPanelsTogether;
  const auto fewer = static_cast<int>(tokens.tokens / tokens.num_tiles);
  const auto more = static_cast<int>((tokens.tokens + tokens.num_tiles - 1) / tokens.num_tiles);
  const int64_t first = Product::panels_at_once(fewer), second = Product::panels_at_once(more);
  return first == second ? first : first * second;
}

template <class Product>
void linear_range(const LinearRange& r) {
  constexpr int64_t kChunk = 128;  // tokens: what the cache holds of them
  const int64_t num_tiles = r.tokens.num_tiles;
  const int64_t chunk_tiles = (kChunk * num_tiles + r.tokens.tokens - 1) / r.tokens.tokens;
  const int64_t together = panels_together<Product>(r.tokens);
  for (int64_t tile = 0; tile < num_tiles; tile += chunk_tiles) {
    const int64_t end_tile = num_tiles - tile < chunk_tiles ? num_tiles : tile + chunk_tiles;
    for (int64_t panel = 0; panel < r.num_panels; panel += together) {
      const int64_t end_panel = r.num_panels - panel < together ? r.num_panels : panel + together;
      multiply_tiles<Product>(r, panel, end_panel, tile, end_tile);
    }
  }
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
