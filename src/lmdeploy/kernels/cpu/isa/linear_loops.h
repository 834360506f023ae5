// The loops around a way of multiplying, a struct Product:
//   kGroup                  columns of a group; groups are added to the totals one after the other
//   kSlowDecode             decoding costs more than going through the cache once
//   Block                   a block of kColumnBlock columns of one panel, decoded into the cache
//   stream<P, T>(range, panel, token)               P panels times a tile of T tokens, decoded in registers
//   block(scratch), decode(block, panel, group, count, cols)
//   multiply<T>(block, tokens, token, group, count, totals)    adds the block's groups to totals [T][16]
// Few tokens stream the panels; many decode a block of columns once and run the register tile over all
// tokens.
#pragma once

#include "lmdeploy/kernels/cpu/isa.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// Tokens of a tile that decodes in registers; more than one or two such tiles decode through the cache.
constexpr int kStreamTile = kTokenTile < 6 ? kTokenTile : 6;

void write_out(const LinearRange& r, int64_t panel, int64_t token, const float* total) {
  const int64_t row = panel * kPanelRows;
  const int64_t n = r.rows - row < kPanelRows ? r.rows - row : kPanelRows;
  float* out = r.out + token * r.out_stride + row;
  for (int64_t i = 0; i < n; i += kLanes) {
    VecF v = load(total + i);
    if (r.bias != nullptr) v += load(r.bias + row + i, n - i);
    store(out + i, v, n - i);
  }
}

/// Panels side by side: enough that the additions of different sums hide each other's latency.
template <int T>
constexpr int panels_at_once() {
  const int vectors = T == 1 ? 4 : 8;  // of sums; more spill
  return vectors < kVecs * T ? 1 : vectors / (kVecs * T);
}

/// Product::stream for T = `tile_tokens`, which is in [1, kMax]: up to panels_at_once, returns how many.
template <class Product, int kMax>
LMD_INLINE int64_t stream_tile_of(int64_t tile_tokens, const LinearRange& r, int64_t panel, int64_t end_panel,
                                  int64_t first_token) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return stream_tile_of<Product, kMax - 1>(tile_tokens, r, panel, end_panel, first_token);
  }
  constexpr int kAtOnce = panels_at_once<kMax>();
  if (end_panel - panel < kAtOnce) {
    Product::template stream<1, kMax>(r, panel, first_token);
    return 1;
  }
  Product::template stream<kAtOnce, kMax>(r, panel, first_token);
  return kAtOnce;
}

/// All panels of the range. A second tile finds the panels in the cache.
template <class Product>
void stream_range(const LinearRange& r) {
  const PackedTokens& tokens = r.tokens;
  constexpr int64_t kTogether = 4;  // panels: a multiple of panels_at_once
  for (int64_t first = 0; first < r.num_panels; first += kTogether) {
    const int64_t end = r.num_panels - first < kTogether ? r.num_panels : first + kTogether;
    for (int64_t tile = 0; tile < tokens.num_tiles; ++tile) {
      const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
      const int64_t size = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles) - token;
      for (int64_t panel = first; panel < end;)
        panel += stream_tile_of<Product, kStreamTile>(size, r, panel, end, token);
    }
  }
}

/// Product::multiply for T = `tile_tokens`, which is in [1, kMax].
template <class Product, int kMax>
LMD_INLINE void multiply_tile_of(int64_t tile_tokens, const typename Product::Block& block,
                                 const PackedTokens& tokens, int64_t first_token, int64_t first_group,
                                 int64_t num_groups, float* totals) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return multiply_tile_of<Product, kMax - 1>(tile_tokens, block, tokens, first_token, first_group,
                                                 num_groups, totals);
  }
  Product::template multiply<kMax>(block, tokens, first_token, first_group, num_groups, totals);
}

/// Some panels times the tokens of the tiles [first_tile, end_tile): at most kPanelChunk and kTokenChunk.
template <class Product>
void multiply_chunk(const LinearRange& r, int64_t first_panel, int64_t end_panel, int64_t first_tile,
                    int64_t end_tile) {
  const PackedTokens& tokens = r.tokens;
  const int64_t begin = tile_begin(first_tile, tokens.tokens, tokens.num_tiles);
  const int64_t end = tile_begin(end_tile, tokens.tokens, tokens.num_tiles);
  const int64_t num_groups = (tokens.cols + Product::kGroup - 1) / Product::kGroup;
  constexpr int64_t kBlockGroups = kColumnBlock / Product::kGroup;
  const typename Product::Block block = Product::block(r.scratch);
  float* totals = r.scratch + (kColumnBlock + 2 * kColumnBlock / 16) * kPanelRows;
  const int64_t panel_totals = (end - begin) * kPanelRows;
  __builtin_memset(totals, 0, static_cast<size_t>((end_panel - first_panel) * panel_totals) * sizeof(float));
  for (int64_t g = 0; g < num_groups; g += kBlockGroups) {
    const int64_t count = num_groups - g < kBlockGroups ? num_groups - g : kBlockGroups;
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      Product::decode(block, r.panels + panel * r.panel_bytes, g, count, tokens.cols);
      for (int64_t tile = first_tile; tile < end_tile; ++tile) {
        const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
        const int64_t next = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles);
        multiply_tile_of<Product, kTokenTile>(
            next - token, block, tokens, token, g, count,
            totals + (panel - first_panel) * panel_totals + (token - begin) * kPanelRows);
      }
    }
  }
  for (int64_t panel = first_panel; panel < end_panel; ++panel)
    for (int64_t t = 0; t < end - begin; ++t)
      write_out(r, panel, begin + t, totals + (panel - first_panel) * panel_totals + t * kPanelRows);
}

template <class Product>
void linear_range(const LinearRange& r) {
  const PackedTokens& tokens = r.tokens;
  constexpr int64_t kMaxTiles = Product::kSlowDecode ? 1 : 2;
  if (tokens.num_tiles <= kMaxTiles && tokens.tokens <= tokens.num_tiles * kStreamTile)
    return stream_range<Product>(r);
  constexpr int64_t kTiles = kTokenChunk / kTokenTile;
  for (int64_t tile = 0; tile < tokens.num_tiles; tile += kTiles) {
    const int64_t end_tile = tokens.num_tiles - tile < kTiles ? tokens.num_tiles : tile + kTiles;
    for (int64_t panel = 0; panel < r.num_panels; panel += kPanelChunk) {
      const int64_t end_panel = r.num_panels - panel < kPanelChunk ? r.num_panels : panel + kPanelChunk;
      multiply_chunk<Product>(r, panel, end_panel, tile, end_tile);
    }
  }
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
