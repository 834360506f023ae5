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

/// The way of linear_loops.h in f32.
template <class Panel>
struct FloatProduct {
  static constexpr int kMinTile = 1, kMaxTile = kFloatTile;
  static constexpr bool kAsksAhead = false;
  static constexpr bool kDecodesOnce = false;
  static constexpr int panels_at_once(int tokens) { return plain_panels_at_once(tokens); }

  /// The first kColumns columns of word w of group g.
  template <int P, int T, int kColumns>
  static LMD_INLINE void add_word(Row16 (&sums)[P][T], const std::byte* const (&panels)[P], int64_t g,
                                  int64_t w, const float* x) {
    typename Panel::Word word[P];
    for (int p = 0; p < P; ++p) word[p] = Panel::load(panels[p], g, w);
    if constexpr (P == 1 && !Panel::kScaled)
      ask_for<T>(panels[0] + (g * Panel::kGroup / Panel::kWord + w) * Panel::kWordBytes);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const Row16 column = Panel::column(word[p], j);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) add_product(sums[p][t], column, x[j * T + t]);
      }
    }
  }

  /// P panels times the tile of T tokens that begins at `first_token`, decoded in registers.
  template <int P, int T>
  static void stream(const LinearRange& r, int64_t first_panel, int64_t first_token, Ahead&) {
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
      const int64_t length = group_length<Panel>(g, cols);
      for (int p = 0; p < P; ++p) Panel::template prefetch<P, T>(panels[p], g);
      const int64_t words = length / Panel::kWord;
      for (int64_t w = 0; w < words; ++w, x += Panel::kWord * T)
        add_word<P, T, Panel::kWord>(sums, panels, g, w, x);
      if (Panel::kWord == 2 && length % 2 != 0) add_word<P, T, 1>(sums, panels, g, words, x);
      for (int p = 0; p < P; ++p) {
        Row16 scale{}, min{};
        if constexpr (Panel::kScaled) scale = Panel::scale(panels[p], g);
        if constexpr (Panel::kHasMin) min = Panel::min(panels[p], g);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t)
          add_group<Panel>(totals[p][t], sums[p][t], scale, min, Panel::kHasMin ? x_sums[g * T + t] : 0);
      }
    }
    write_totals(r, first_panel, first_token, totals);
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
