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

/// Some columns of a panel as bytes: words of [16 rows][4 columns].
struct ByteBlock {
  std::byte* words;  // [kColumnBlock / 4][64]
  float* scales;     // [groups][16]
  float* mins;       // [groups][16]
};

template <class Panel>
struct Int8Product {
  static constexpr int kGroup = Panel::kGroup;
  static constexpr bool kSlowDecode = Panel::kSlowDecode;
  static constexpr int kSteps = kGroup / 4;
  static constexpr bool kSigned = Panel::kSigned && kSignedBytes;
  /// What the bytes have too much.
  static constexpr int kBias = Panel::kSigned && !kSignedBytes ? 128 : Panel::kIntegerBias;
  using Block = ByteBlock;

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

  static LMD_INLINE VecI stored(VecI bytes) {
    return Panel::kSigned && !kSignedBytes ? bytes ^ static_cast<int32_t>(0x80808080u) : bytes;
  }

  /// sums[t] = group sums of tokens [kFirst, kFirst + N) of a tile of T. load(w) is word w of 8 columns, and
  /// bytes(word, i, half) vector i of its even or odd columns.
  template <int T, int kFirst, int N, class Load, class Bytes>
  static LMD_INLINE void group_sums(Sums (&sums)[T], const Group<T>& group, const Load& load,
                                    const Bytes& bytes) {
    constexpr int kWords = kGroup / 8;
    constexpr int kRun = kSigned ? kWords : (kRunSteps<Panel> / 2 < kWords ? kRunSteps<Panel> / 2 : kWords);
    static_assert(kWords % kRun == 0);
    for (int first = 0; first < kWords; first += kRun) {
      Sums run[N] = {};
#pragma GCC unroll 1  // unrolled, GCC 12 multiplies far ahead and spills
      for (int w = first; w < first + kRun; ++w) {
        const auto word = load(w);
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          VecI v[kVecs];
          for (int i = 0; i < kVecs; ++i) v[i] = bytes(word, i, half);
#pragma GCC unroll 12
          for (int t = 0; t < N; ++t) {
            const VecI x = splat_bytes(group.q + ((2 * w + half) * T + kFirst + t) * 4);
            for (int i = 0; i < kVecs; ++i) {
              run[t].v[i] = add_dot<kSigned>(run[t].v[i], v[i], x);
              keep_order(run[t].v[i]);
            }
          }
        }
      }
      for (int t = 0; t < N; ++t) {
        for (int i = 0; i < kVecs; ++i) {
          const VecI sum = finish_run<kSigned>(run[t].v[i]);
          sums[kFirst + t].v[i] = first == 0 ? sum : sums[kFirst + t].v[i] + sum;
        }
      }
    }
  }

  template <int T>
  static LMD_INLINE void add_group(Row16& total, const Sums& sums, const Row16& scale, const Row16& min,
                                   const Group<T>& group, int t) {
    const VecF token_scale = splat(group.scales[t]);
    for (int i = 0; i < kVecs; ++i) {
      VecI whole = sums.v[i];
      if constexpr (kBias != 0) whole -= kBias * group.q_sum(t);
      total.v[i] = fma(scale.v[i] * token_scale, to_f32(whole), total.v[i]);
      if constexpr (Panel::kHasMin) total.v[i] = fma(min.v[i], splat(group.sums[t]), total.v[i]);
    }
  }

  static LMD_INLINE Block block(float* scratch) {
    return {reinterpret_cast<std::byte*>(scratch), scratch + kColumnBlock * kPanelRows,
            scratch + (kColumnBlock + kColumnBlock / 16) * kPanelRows};
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
        Panel::prefetch(panel, g);
        Sums sums[T];
        group_sums<T, 0, T>(
            sums, group, [&](int w) { return Panel::load(panel, g, w); },
            [](const typename Panel::Word& word, int i, int half) {
              return stored(Panel::bytes(word, i, half));
            });
        Row16 min{};
        if constexpr (Panel::kHasMin) min = Panel::min(panel, g);
        const Row16 scale = Panel::scale(panel, g);
        for (int t = 0; t < T; ++t) add_group<T>(totals[p][t], sums[t], scale, min, group, t);
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

  static void decode(const Block& block, const std::byte* panel, int64_t first_group, int64_t num_groups,
                     int64_t) {
    std::byte* out = block.words;
    for (int64_t j = 0; j < num_groups; ++j) {
      const int64_t g = first_group + j;
      for (int s = 0; s < kSteps; ++s, out += 64)
        for (int i = 0; i < kVecs; ++i)
          store_as(out + i * 4 * kLanes, stored(Panel::bytes(Panel::load(panel, g, s / 2), i, s % 2)));
      store16(block.scales + j * kPanelRows, Panel::scale(panel, g));
      if constexpr (Panel::kHasMin) store16(block.mins + j * kPanelRows, Panel::min(panel, g));
    }
  }

  template <int T>
  static void multiply(const Block& block, const PackedTokens& tokens, int64_t first_token,
                       int64_t first_group, int64_t num_groups, float* totals) {
    const std::byte* words = block.words;
    for (int64_t j = 0; j < num_groups; ++j, words += kSteps * 64) {
      const Group<T> group(tokens, first_token, first_group + j);
      Sums sums[T];
      const auto load = [&](int w) { return words + w * 128; };
      const auto bytes = [](const std::byte* word, int i, int half) {
        return load_as<VecI>(word + half * 64 + i * 4 * kLanes);
      };
      if constexpr (kSigned && kVecs == 2 && T > 3) {  // signs and magnitudes take registers of their own
        group_sums<T, 0, 3>(sums, group, load, bytes);
        group_sums<T, 3, T - 3>(sums, group, load, bytes);
      } else {
        group_sums<T, 0, T>(sums, group, load, bytes);
      }
      Row16 min{};
      if constexpr (Panel::kHasMin) min = load16(block.mins + j * kPanelRows);
      const Row16 scale = load16(block.scales + j * kPanelRows);
#pragma GCC unroll 12
      for (int t = 0; t < T; ++t) {
        Row16 total = load16(totals + t * kPanelRows);
        add_group<T>(total, sums[t], scale, min, group, t);
        store16(totals + t * kPanelRows, total);
      }
    }
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
