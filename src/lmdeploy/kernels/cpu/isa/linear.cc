// Linear: out = x W^T. One order of summation for any number of tokens: the columns of a group (a scale
// group, or 256 columns of a plain kind) are summed from 0 with rising column, then
//   total += scale * group_sum,  total += min * sum of the group's x.
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/linear_loops.h"
#include "lmdeploy/kernels/cpu/isa/panels.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

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
    for (int p = 0; p < P; ++p) Panel::prefetch(panels[p], g);
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

/// The way of linear_loops.h in f32.
template <class Panel>
struct FloatProduct {
  static constexpr int kGroup = Panel::kGroup;
  static constexpr bool kSlowDecode = Panel::kSlowDecode;
  using Block = DecodedBlock;

  static LMD_INLINE Block block(float* scratch) {
    return {scratch, scratch + kColumnBlock * kPanelRows,
            scratch + (kColumnBlock + kColumnBlock / 16) * kPanelRows};
  }
  template <int P, int T>
  static LMD_INLINE void stream(const LinearRange& r, int64_t panel, int64_t token) {
    stream_panels<Panel, P, T>(r, panel, token);
  }
  static LMD_INLINE void decode(const Block& block, const std::byte* panel, int64_t first_group,
                                int64_t num_groups, int64_t cols) {
    decode_block<Panel>(block, panel, first_group, num_groups, cols);
  }
  template <int T>
  static LMD_INLINE void multiply(const Block& block, const PackedTokens& tokens, int64_t first_token,
                                  int64_t first_group, int64_t num_groups, float* totals) {
    multiply_tile<Panel, T>(block, tokens, first_token, first_group, num_groups, totals);
  }
};

}  // namespace

void linear(const LinearRange& range) {
  switch (range.kind) {
    case Kind::kF32:
      return linear_range<FloatProduct<F32Panel>>(range);
    case Kind::kF16:
      return linear_range<FloatProduct<F16Panel>>(range);
    case Kind::kBF16:
      return linear_range<FloatProduct<BF16Panel>>(range);
    case Kind::kQ4_0:
      return linear_range<FloatProduct<Q4_0Panel>>(range);
    case Kind::kQ4_1:
      return linear_range<FloatProduct<Q4_1Panel>>(range);
    case Kind::kQ5_0:
      return linear_range<FloatProduct<Q5_0Panel>>(range);
    case Kind::kQ5_1:
      return linear_range<FloatProduct<Q5_1Panel>>(range);
    case Kind::kQ8_0:
      return linear_range<FloatProduct<Q8_0Panel>>(range);
    case Kind::kQ4_K:
      return linear_range<FloatProduct<Q4_KPanel>>(range);
    case Kind::kQ5_K:
      return linear_range<FloatProduct<Q5_KPanel>>(range);
    case Kind::kQ6_K:
      return linear_range<FloatProduct<Q6_KPanel>>(range);
    case Kind::kU4G32:
      return linear_range<FloatProduct<U4G32Panel>>(range);
    case Kind::kU4G128:
      return linear_range<FloatProduct<U4G128Panel>>(range);
    case Kind::kU5G32:
      return linear_range<FloatProduct<U5G32Panel>>(range);
    case Kind::kI8G64:
      return linear_range<FloatProduct<I8G64Panel>>(range);
    case Kind::kF8G64:
      return linear_range<FloatProduct<F8Panel>>(range);
  }
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
