// The loops around a way of multiplying, a struct Product:
//   stream<P, T>(range, panel, token, ahead)        P panels times a tile of T tokens, decoded in registers
//   panels_at_once(tokens)                          P
//   kMinTile, kMaxTile                              the range of T
//   kAsksAhead                                      whether it asks for `ahead`
//   kDecodesOnce                                    whether it has what follows:
//   Decoded                                         the way for decoded panels
//   decode(panel, cols, out)                        to Decoded::panel_bytes(cols)
// Each tile decodes the panels anew, out of the cache, unless there are many (PackedTokens::decodes_once).
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
  /// An even share of it for the next of `tiles`; the rest is left.
  Ahead share(int64_t tiles) {
    const Ahead part{next, next + (end - next) / tiles};
    next = part.end;
    return part;
  }
};

/// Product::stream for T = `tile_tokens`, which is in [kMinTile, kMax]: up to panels_at_once, returns how
/// many.
template <class Product, int kMax>
LMD_INLINE int64_t stream_tile_of(int64_t tile_tokens, const LinearRange& r, int64_t panel, int64_t end_panel,
                                  int64_t first_token, Ahead& ahead) {
  if constexpr (kMax > Product::kMinTile) {
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

/// Panels [panel, end_panel) of a range and tiles [tile, end_tile) of its tokens.
struct Block {
  int64_t panel;
  int64_t end_panel;
  int64_t tile;
  int64_t end_tile;
};

/// As many panels after those of a block.
inline Ahead panels_after(const LinearRange& r, const Block& block) {
  const int64_t together = block.end_panel - block.panel, after = r.num_panels - block.end_panel;
  const std::byte* next = r.panels + block.end_panel * r.panel_bytes;
  return {next, next + (together < after ? together : after) * r.panel_bytes};
}

/// If only the first tile read memory, it would wait for it and memory would rest meanwhile: all ask for a
/// share of the panels that come `after`, but the first where the block's own are not in the cache yet.
template <class Product>
void multiply(const LinearRange& r, const Block& block, Ahead after, bool is_cached) {
  const PackedTokens& tokens = r.tokens;
  for (int64_t tile = block.tile; tile < block.end_tile; ++tile) {
    const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
    const int64_t size = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles) - token;
    Ahead ahead;
    if (Product::kAsksAhead && is_cached) ahead = after.share(block.end_tile - tile);
    for (int64_t panel = block.panel; panel < block.end_panel;)
      panel += stream_tile_of<Product, Product::kMaxTile>(size, r, panel, block.end_panel, token, ahead);
    is_cached = true;
  }
}

/// The same with the block's panels decoded to r.scratch.
template <class Product>
void decode_and_multiply(const LinearRange& r, const Block& block) {
  using Decoded = typename Product::Decoded;
  const int64_t num_panels = block.end_panel - block.panel;
  LinearRange decoded = r;
  decoded.panels = r.scratch;
  decoded.panel_bytes = Decoded::panel_bytes(r.tokens.cols);
  decoded.num_panels = num_panels;
  decoded.out += block.panel * kPanelRows;
  decoded.rows -= block.panel * kPanelRows;
  if (r.bias != nullptr) decoded.bias += block.panel * kPanelRows;
  for (int64_t p = 0; p < num_panels; ++p)
    Product::decode(r.panels + (block.panel + p) * r.panel_bytes, r.tokens.cols,
                    r.scratch + p * decoded.panel_bytes);
  multiply<Decoded>(decoded, {0, num_panels, block.tile, block.end_tile}, panels_after(r, block), true);
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

/// Tokens of a chunk, all of whose tiles are multiplied with some panels before the next ones: about what the
/// second cache holds. Tokens of decoded panels are bytes, and the more there are the less is decoded again.
constexpr int64_t kChunk = 128;
constexpr int64_t decoded_chunk(int64_t cols) {
  constexpr int64_t kBytes = 512 << 10;
  return kBytes / cols < kChunk ? kChunk : kBytes / cols;
}

/// body(block) for all panels and tokens, `together` panels and about `chunk_tokens` tokens at once.
template <class Body>
LMD_INLINE void for_blocks(const LinearRange& r, int64_t together, int64_t chunk_tokens, const Body& body) {
  const int64_t rounded = (r.tokens.tokens + chunk_tokens / 2) / chunk_tokens;
  const int64_t chunks = rounded < 1 ? 1 : rounded;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const int64_t tile = chunk * r.tokens.num_tiles / chunks;
    const int64_t end_tile = (chunk + 1) * r.tokens.num_tiles / chunks;
    for (int64_t panel = 0; panel < r.num_panels; panel += together) {
      const int64_t end_panel = r.num_panels - panel < together ? r.num_panels : panel + together;
      body(Block{panel, end_panel, tile, end_tile});
    }
  }
}

template <class Product>
void linear_range(const LinearRange& r) {
  if constexpr (Product::kDecodesOnce) {
    constexpr int kTogether = Product::Decoded::panels_at_once(Product::Decoded::kMaxTile);
    static_assert(kTogether <= kPanelsDecoded);
    if (r.tokens.decodes_once)
      return for_blocks(r, kTogether, decoded_chunk(r.tokens.cols),
                        [&](const Block& block) { decode_and_multiply<Product>(r, block); });
  }
  for_blocks(r, panels_together<Product>(r.tokens), kChunk, [&](const Block& block) {
    multiply<Product>(r, block, panels_after(r, block), block.panel > 0);
  });
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
