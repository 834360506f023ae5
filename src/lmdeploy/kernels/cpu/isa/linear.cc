// Linear: out = x W^T. One order of summation for any number of tokens: the columns of a group (a scale
// group, or 256 columns of a plain kind) are summed from 0 with rising column, then
//   total += scale * group_sum,  total += min * sum of the group's x.
// Few tokens stream the panels and decode them in registers; many decode a block of columns once into the
// cache and run the register tile over all tokens.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/micro.h"
#include "lmdeploy/kernels/cpu/isa/panels.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// Tokens of a tile that decodes in registers; more than one or two such tiles decode through the cache.
constexpr int kStreamTile = kTokenTile < 6 ? kTokenTile : 6;

/// The end of a group: sum and totals of one row panel and token. `x_sum` is only read by kinds with a min.
template <class Panel>
LMD_INLINE void add_group(Row16& total, const Row16& sum, const Row16& scale, const Row16& min, float x_sum) {
  if constexpr (Panel::kScaled) {
    add_product(total, scale, sum);
  } else {
    total = total + sum;
  }
  if constexpr (Panel::kHasMin) add_product(total, min, x_sum);
}

template <class Panel>
LMD_INLINE int64_t group_length(int64_t group, int64_t cols) {
  if constexpr (Panel::kScaled) return Panel::kGroup;  // whole groups only
  const int64_t rest = cols - group * Panel::kGroup;
  return rest < Panel::kGroup ? rest : Panel::kGroup;
}

/// Sums of x for group `group` of a tile of T tokens; a scale group of a kind with a min is one sum group.
template <int T>
LMD_INLINE const float* group_sums(const PackedTokens& tokens, int64_t first_token, int64_t group) {
  return tokens.sums + first_token * (tokens.cols / kSumGroup) + group * T;
}

template <class Panel>
LMD_INLINE const float* packed_x(const PackedTokens& tokens) {
  return Panel::kShifted ? tokens.shifted_x : tokens.x;
}

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

/// P panels times the tile of T tokens that begins at `first_token`, decoded in registers.
template <class Panel, int P, int T>
void stream_panels(const LinearRange& r, int64_t first_panel, int64_t first_token) {
  const std::byte* panels[P];
  for (int p = 0; p < P; ++p) panels[p] = r.panels + (first_panel + p) * r.panel_bytes;
  const int64_t cols = r.tokens.cols;
  const int64_t num_groups = (cols + Panel::kGroup - 1) / Panel::kGroup;
  const float* x_sums = Panel::kHasMin ? group_sums<T>(r.tokens, first_token, 0) : nullptr;
  const float* all_x = packed_x<Panel>(r.tokens) + first_token * cols;
  Row16 totals[P][T] = {};
  for (int64_t g = 0; g < num_groups; ++g) {
    Row16 sums[P][T] = {};
    const float* x = all_x + g * Panel::kGroup * T;
    const int64_t words = group_length<Panel>(g, cols) / Panel::kWord;
    for (int64_t w = 0; w < words; ++w, x += Panel::kWord * T) {
      typename Panel::Word word[P];
      for (int p = 0; p < P; ++p) word[p] = Panel::load(panels[p], g, w);
#pragma GCC unroll 8
      for (int j = 0; j < Panel::kWord; ++j) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const Row16 column = Panel::column(word[p], j);
#pragma GCC unroll 6
          for (int t = 0; t < T; ++t) add_product(sums[p][t], column, x[j * T + t]);
        }
      }
    }
    for (int p = 0; p < P; ++p) {
      Row16 scale{}, min{};
      if constexpr (Panel::kScaled) scale = Panel::scale(panels[p], g);
      if constexpr (Panel::kHasMin) min = Panel::min(panels[p], g);
      for (int t = 0; t < T; ++t)
        add_group<Panel>(totals[p][t], sums[p][t], scale, min, Panel::kHasMin ? x_sums[g * T + t] : 0);
    }
  }
  for (int p = 0; p < P; ++p) {
    for (int t = 0; t < T; ++t) {
      float total[kPanelRows];
      store16(total, totals[p][t]);
      write_out(r, first_panel + p, first_token + t, total);
    }
  }
}

/// Panels side by side: enough that the additions of different sums hide each other's latency.
template <int T>
constexpr int panels_at_once() {
  const int vectors = T == 1 ? 4 : 8;  // of sums; more spill
  return vectors < kVecs * T ? 1 : vectors / (kVecs * T);
}

/// stream_panels for T = `tile_tokens`, which is in [1, kMax]: up to panels_at_once, returns how many.
template <class Panel, int kMax>
LMD_INLINE int64_t stream_tile_of(int64_t tile_tokens, const LinearRange& r, int64_t panel, int64_t end_panel,
                                  int64_t first_token) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return stream_tile_of<Panel, kMax - 1>(tile_tokens, r, panel, end_panel, first_token);
  }
  constexpr int kAtOnce = panels_at_once<kMax>();
  if (end_panel - panel < kAtOnce) {
    stream_panels<Panel, 1, kMax>(r, panel, first_token);
    return 1;
  }
  stream_panels<Panel, kAtOnce, kMax>(r, panel, first_token);
  return kAtOnce;
}

/// All panels of the range. A second tile finds the panels in the cache.
template <class Panel>
void stream_range(const LinearRange& r) {
  const PackedTokens& tokens = r.tokens;
  constexpr int64_t kTogether = 4;  // panels: a multiple of panels_at_once
  for (int64_t first = 0; first < r.num_panels; first += kTogether) {
    const int64_t end = r.num_panels - first < kTogether ? r.num_panels : first + kTogether;
    for (int64_t tile = 0; tile < tokens.num_tiles; ++tile) {
      const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
      const int64_t size = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles) - token;
      for (int64_t panel = first; panel < end;)
        panel += stream_tile_of<Panel, kStreamTile>(size, r, panel, end, token);
    }
  }
}

/// A block of kColumnBlock columns of one panel, decoded.
struct DecodedBlock {
  float* columns;  // [kColumnBlock][16]
  float* scales;   // [groups][16]
  float* mins;     // [groups][16]
};

template <class Panel>
void decode_block(const DecodedBlock& block, const std::byte* panel, int64_t first_group, int64_t num_groups,
                  int64_t cols) {
  float* column = block.columns;
  for (int64_t i = 0; i < num_groups; ++i) {
    const int64_t g = first_group + i;
    const int64_t words = group_length<Panel>(g, cols) / Panel::kWord;
    for (int64_t w = 0; w < words; ++w) {
      const auto word = Panel::load(panel, g, w);
#pragma GCC unroll 8
      for (int j = 0; j < Panel::kWord; ++j, column += kPanelRows) store16(column, Panel::column(word, j));
    }
    if constexpr (Panel::kScaled) store16(block.scales + i * kPanelRows, Panel::scale(panel, g));
    if constexpr (Panel::kHasMin) store16(block.mins + i * kPanelRows, Panel::min(panel, g));
  }
}

/// Adds a decoded block's groups to the totals [T][16] of one tile.
template <class Panel, int T>
void multiply_tile(const DecodedBlock& block, const PackedTokens& tokens, int64_t first_token,
                   int64_t first_group, int64_t num_groups, float* totals) {
  const int64_t cols = tokens.cols;
  const float* column = block.columns;
  const float* scales = block.scales;
  const float* mins = block.mins;
  const float* x = packed_x<Panel>(tokens) + first_token * cols + first_group * Panel::kGroup * T;
  const float* x_sums = Panel::kHasMin ? group_sums<T>(tokens, first_token, first_group) : nullptr;
  Row16 total[T];
  for (int t = 0; t < T; ++t) total[t] = load16(totals + t * kPanelRows);
  for (int64_t i = 0; i < num_groups; ++i) {
    const int64_t length = group_length<Panel>(first_group + i, cols);
    Row16 sums[T];
    multiply<T>(sums, column, kPanelRows, x, length);
    Row16 scale{}, min{};
    if constexpr (Panel::kScaled) scale = load16(scales + i * kPanelRows);
    if constexpr (Panel::kHasMin) min = load16(mins + i * kPanelRows);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
      add_group<Panel>(total[t], sums[t], scale, min, Panel::kHasMin ? x_sums[i * T + t] : 0);
    column += length * kPanelRows;
    x += length * T;
  }
  for (int t = 0; t < T; ++t) store16(totals + t * kPanelRows, total[t]);
}

/// multiply_tile for T = `tile_tokens`, which is in [1, kMax].
template <class Panel, int kMax>
LMD_INLINE void multiply_tile_of(int64_t tile_tokens, const DecodedBlock& block, const PackedTokens& tokens,
                                 int64_t first_token, int64_t first_group, int64_t num_groups,
                                 float* totals) {
  if constexpr (kMax > 1) {
    if (tile_tokens != kMax)
      return multiply_tile_of<Panel, kMax - 1>(tile_tokens, block, tokens, first_token, first_group,
                                               num_groups, totals);
  }
  multiply_tile<Panel, kMax>(block, tokens, first_token, first_group, num_groups, totals);
}

/// Some panels times the tokens of the tiles [first_tile, end_tile): at most kPanelChunk and kTokenChunk.
template <class Panel>
void multiply_chunk(const LinearRange& r, int64_t first_panel, int64_t end_panel, int64_t first_tile,
                    int64_t end_tile) {
  const PackedTokens& tokens = r.tokens;
  const int64_t begin = tile_begin(first_tile, tokens.tokens, tokens.num_tiles);
  const int64_t end = tile_begin(end_tile, tokens.tokens, tokens.num_tiles);
  const int64_t num_groups = (tokens.cols + Panel::kGroup - 1) / Panel::kGroup;
  constexpr int64_t kBlockGroups = kColumnBlock / Panel::kGroup;
  const DecodedBlock block = {r.scratch, r.scratch + kColumnBlock * kPanelRows,
                              r.scratch + (kColumnBlock + kColumnBlock / 16) * kPanelRows};
  float* totals = r.scratch + (kColumnBlock + 2 * kColumnBlock / 16) * kPanelRows;
  const int64_t panel_totals = (end - begin) * kPanelRows;
  __builtin_memset(totals, 0, static_cast<size_t>((end_panel - first_panel) * panel_totals) * sizeof(float));
  for (int64_t g = 0; g < num_groups; g += kBlockGroups) {
    const int64_t count = num_groups - g < kBlockGroups ? num_groups - g : kBlockGroups;
    for (int64_t panel = first_panel; panel < end_panel; ++panel) {
      decode_block<Panel>(block, r.panels + panel * r.panel_bytes, g, count, tokens.cols);
      for (int64_t tile = first_tile; tile < end_tile; ++tile) {
        const int64_t token = tile_begin(tile, tokens.tokens, tokens.num_tiles);
        const int64_t next = tile_begin(tile + 1, tokens.tokens, tokens.num_tiles);
        multiply_tile_of<Panel, kTokenTile>(
            next - token, block, tokens, token, g, count,
            totals + (panel - first_panel) * panel_totals + (token - begin) * kPanelRows);
      }
    }
  }
  for (int64_t panel = first_panel; panel < end_panel; ++panel)
    for (int64_t t = 0; t < end - begin; ++t)
      write_out(r, panel, begin + t, totals + (panel - first_panel) * panel_totals + t * kPanelRows);
}

template <class Panel>
void linear_range(const LinearRange& r) {
  const PackedTokens& tokens = r.tokens;
  constexpr int64_t kMaxTiles = Panel::kSlowDecode ? 1 : 2;
  if (tokens.num_tiles <= kMaxTiles && tokens.tokens <= tokens.num_tiles * kStreamTile)
    return stream_range<Panel>(r);
  constexpr int64_t kTiles = kTokenChunk / kTokenTile;
  for (int64_t tile = 0; tile < tokens.num_tiles; tile += kTiles) {
    const int64_t end_tile = tokens.num_tiles - tile < kTiles ? tokens.num_tiles : tile + kTiles;
    for (int64_t panel = 0; panel < r.num_panels; panel += kPanelChunk) {
      const int64_t end_panel = r.num_panels - panel < kPanelChunk ? r.num_panels : panel + kPanelChunk;
      multiply_chunk<Panel>(r, panel, end_panel, tile, end_tile);
    }
  }
}

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

}  // namespace

void pack_tokens(const PackedTokens& packed, const float* x, int64_t stride, int64_t first_tile,
                 int64_t end_tile) {
  const int64_t cols = packed.cols;
  const int64_t num_sums = cols / kSumGroup;
  for (int64_t tile = first_tile; tile < end_tile; ++tile) {
    const int64_t begin = tile_begin(tile, packed.tokens, packed.num_tiles);
    const int64_t size = tile_begin(tile + 1, packed.tokens, packed.num_tiles) - begin;
    for (int64_t t = 0; t < size; ++t) {
      const float* row = x + (begin + t) * stride;
      if (packed.x != nullptr) {
        float* dst = packed.x + begin * cols + t;
        for (int64_t k = 0; k < cols; ++k) dst[k * size] = row[k];
      }
      if (packed.shifted_x != nullptr) pack_shifted(packed.shifted_x + begin * cols + t, size, row, cols);
      if (packed.sums != nullptr) {
        float* dst = packed.sums + begin * num_sums + t;
        for (int64_t g = 0; g < num_sums; ++g) dst[g * size] = sum_group(row + g * kSumGroup);
      }
    }
  }
}

void linear(const LinearRange& range) {
  switch (range.kind) {
    case Kind::kF32:
      return linear_range<F32Panel>(range);
    case Kind::kF16:
      return linear_range<F16Panel>(range);
    case Kind::kBF16:
      return linear_range<BF16Panel>(range);
    case Kind::kQ4_0:
      return linear_range<Q4_0Panel>(range);
    case Kind::kQ4_1:
      return linear_range<Q4_1Panel>(range);
    case Kind::kQ5_0:
      return linear_range<Q5_0Panel>(range);
    case Kind::kQ5_1:
      return linear_range<Q5_1Panel>(range);
    case Kind::kQ8_0:
      return linear_range<Q8_0Panel>(range);
    case Kind::kQ4_K:
      return linear_range<Q4_KPanel>(range);
    case Kind::kQ5_K:
      return linear_range<Q5_KPanel>(range);
    case Kind::kQ6_K:
      return linear_range<Q6_KPanel>(range);
  }
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
