// Linear with the tokens rounded to signed bytes, one scale for 32 columns of a token (PackedTokens): integer
// products, exact sums of a scale group, then
//   total += (scale * token scale) * group_sum,  total += min * sum of the group's rounded x
// group after group, for any number of tokens.
#include "lmdeploy/kernels/cpu/isa/dot.h"
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/linear_loops.h"
#include "lmdeploy/kernels/cpu/isa/panels.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// The way of linear_loops.h in bytes.
template <class Panel>
struct Int8Product {
  /// Asked for ahead, its bytes come in time (QuantPanel::prefetch). With two vectors to a row the sums of
  /// one panel leave too little to do meanwhile.
  static constexpr bool kOnePanel = kVecs == 1;

  static constexpr int kGroup = Panel::kGroup;
  static constexpr bool kSigned = Panel::kSigned && kSignedBytes;
  /// What the bytes have too much.
  static constexpr int kBias = kSignedBytes ? Panel::kIntegerBias : Panel::kSigned ? 128 : Panel::kStoredBias;
  /// Where runs begin at what the bias adds, no min has to take it off.
  static constexpr bool kHasMin = kSignedBytes ? Panel::kHasMin : Panel::kHasOwnMin;

  struct Sums {
    VecI v[kVecs];
  };

  /// The token's numbers of group g.
  template <int T>
  struct Group {
    const int8_t* q;
    const float* scales;
    const float* sums;
    const int32_t* q_sums;

    LMD_INLINE Group(const PackedTokens& tokens, int64_t first_token, int64_t g)
        : q(tokens.q + first_token * tokens.cols + g * kGroup * T) {
      const int64_t groups = tokens.cols / kSumGroup;
      const int64_t at = first_token * groups + g * kGroup / kSumGroup * T;
      scales = tokens.q_scales + at;
      sums = tokens.sums + at;
      q_sums = tokens.q_sums + 2 * first_token * groups + g * kGroup / 16 * T;
    }
    LMD_INLINE int32_t q_sum(int t) const { return kGroup == 16 ? q_sums[t] : q_sums[t] + q_sums[T + t]; }
  };

  /// Vector i of the even or odd columns of a word, unsigned where products want that.
  static LMD_INLINE VecI bytes(const typename Panel::Word& word, int i, int half) {
    const VecI stored = Panel::bytes(word, i, half);
    return Panel::kSigned && !kSignedBytes ? stored ^ static_cast<int32_t>(0x80808080u) : stored;
  }

  /// Whether a run begins at what the bias adds, taken off; else add_group() takes it off: runs are of 16
  /// bits.
  static constexpr bool kBiasFirst = kBias != 0 && !kSignedBytes;

  /// sums[t] = sum over the columns of group g, of which the panel's words are read, for each token of a
  /// tile.
  template <int T>
  static LMD_INLINE void group_sums(Sums (&sums)[T], const Group<T>& group, const std::byte* panel,
                                    int64_t g) {
    constexpr int kWords = kGroup / 8;
    constexpr int kRun = kSigned ? kWords : (kRunSteps<Panel> / 2 < kWords ? kRunSteps<Panel> / 2 : kWords);
    static_assert(kWords % kRun == 0);
    for (int first = 0; first < kWords; first += kRun) {
      Sums run[T] = {};
      if (kBiasFirst && first == 0)
        for (int t = 0; t < T; ++t)
          for (int i = 0; i < kVecs; ++i) run[t].v[i] = -kBias * group.q_sum(t) - VecI{};
#pragma GCC unroll 1  // unrolled, GCC 12 multiplies far ahead and spills
      for (int w = first; w < first + kRun; ++w) {
        const typename Panel::Word word = Panel::load(panel, g, w);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          VecI v[kVecs];
          for (int i = 0; i < kVecs; ++i) v[i] = bytes(word, i, half);
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t) {
            const VecI x = splat_bytes(group.q + ((2 * w + half) * T + t) * 4);
            for (int i = 0; i < kVecs; ++i) {
              run[t].v[i] = add_dot<kSigned>(run[t].v[i], v[i], x);
              keep_order(run[t].v[i]);
            }
          }
        }
      }
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t)
        for (int i = 0; i < kVecs; ++i) sums[t].v[i] += finish_run<kSigned>(run[t].v[i]);
    }
  }

  template <int T>
  static LMD_INLINE void add_group(Row16& total, const Sums& sums, const Row16& scale, const Row16& min,
                                   const Group<T>& group, int t) {
    const VecF token_scale = splat(group.scales[t]);
    for (int i = 0; i < kVecs; ++i) {
      VecI whole = sums.v[i];
      if constexpr (kBias != 0 && !kBiasFirst) whole -= kBias * group.q_sum(t);
      total.v[i] = fma(scale.v[i] * token_scale, to_f32(whole), total.v[i]);
      if constexpr (kHasMin) total.v[i] = fma(min.v[i], splat(group.sums[t]), total.v[i]);
    }
  }

  template <int P, int T>
  static void stream(const LinearRange& r, int64_t first_panel, int64_t first_token) {
    const int64_t num_groups = r.tokens.cols / kGroup;
    Row16 totals[P][T] = {};
    for (int64_t g = 0; g < num_groups; ++g) {
      const Group<T> group(r.tokens, first_token, g);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const std::byte* panel = r.panels + (first_panel + p) * r.panel_bytes;
        Panel::template prefetch<P, T>(panel, g);
        Sums sums[T] = {};
        group_sums<T>(sums, group, panel, g);
        Row16 min{};
        if constexpr (kHasMin) min = Panel::min(panel, g);
        const Row16 scale = Panel::scale(panel, g);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) add_group<T>(totals[p][t], sums[t], scale, min, group, t);
      }
    }
    write_totals(r, first_panel, first_token, totals);
  }
};

}  // namespace

void linear_int8(const LinearRange& range) {
  switch (range.kind) {
    case Kind::kQ4_0:
      return linear_range<Int8Product<Q4_0Panel>>(range);
    case Kind::kQ4_1:
      return linear_range<Int8Product<Q4_1Panel>>(range);
    case Kind::kQ5_0:
      return linear_range<Int8Product<Q5_0Panel>>(range);
    case Kind::kQ5_1:
      return linear_range<Int8Product<Q5_1Panel>>(range);
    case Kind::kQ8_0:
      return linear_range<Int8Product<Q8_0Panel>>(range);
    case Kind::kQ4_K:
      return linear_range<Int8Product<Q4_KPanel>>(range);
    case Kind::kQ5_K:
      return linear_range<Int8Product<Q5_KPanel>>(range);
    case Kind::kQ6_K:
      return linear_range<Int8Product<Q6_KPanel>>(range);
    case Kind::kU4G32:
      return linear_range<Int8Product<U4G32Panel>>(range);
    case Kind::kU4G128:
      return linear_range<Int8Product<U4G128Panel>>(range);
    case Kind::kU5G32:
      return linear_range<Int8Product<U5G32Panel>>(range);
    case Kind::kI8G64:
      return linear_range<Int8Product<I8G64Panel>>(range);
    default:
      break;  // kinds of floats are never asked for
  }
}

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
