// Linear with the tokens rounded to signed bytes, one scale for 32 columns of a token (PackedTokens): integer
// products, exact sums of a scale group, then
//   total += scale * (group_sum * token scale),  total += min * sum of the group's rounded x
// group after group, for any number of tokens.
//
// Sums are never converted to f32: a sum begins at the bits of 1.5f, where it counts units of 2^-23, and
//   f32(sum) * token scale - 1.5 * token scale
// is one multiply-add that rounds once, as the second product is exact. So totals are 2^-23 of the result.
//
// For many tokens panels are decoded once (DecodedPanel), to the same bits of the result.
#include "lmdeploy/kernels/cpu/isa/dot.h"
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/linear_loops.h"
#include "lmdeploy/kernels/cpu/isa/panels.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

constexpr int32_t kSumStart = 0x3fc00000;  // 1.5f: sums below 2^22 stay in [1, 2)

/// VNNI multiplies unsigned bytes with signed ones. Of decoded panels, tokens are the unsigned ones: what a
/// sum begins at is then the panel's, -128 times the sum of its bytes, and all tokens share it.
constexpr bool kUnsignedTokens = !kSignedBytes;

constexpr int kMaxDecodedTile = kVecs == 1 && kUnsignedTokens ? kDecodedTile : kTokenTile;
/// The smallest tile of any number of tokens that panels are decoded for.
constexpr int least_decoded_tile() {
  int least = kMaxDecodedTile;
  for (int tokens = kDecodeOnceTokens; tokens < kDecodeOnceTokens + kMaxDecodedTile; ++tokens) {
    const int tiles = (tokens + kMaxDecodedTile - 1) / kMaxDecodedTile;
    if (tokens / tiles < least) least = tokens / tiles;
  }
  return least;
}

/// The way of linear_loops.h in bytes.
template <class Panel>
struct Int8Product {
  static constexpr bool kIsDecoded = Panel::kIsDecoded;
  static constexpr int kMinTile = kIsDecoded ? least_decoded_tile() : 1;
  static constexpr int kMaxTile = kIsDecoded ? kMaxDecodedTile : kTokenTile;
  static constexpr bool kAsksAhead = true;
  /// 15 to 24 sums: totals are in memory then, which costs a load and a store a group. Fewer than 3 tokens
  /// leave too little to do while bytes come from memory. Decoded panels: 14 sums, and totals in registers.
  /// Without VNNI runs take registers of their own.
  static constexpr int panels_at_once(int tokens) {
    if (kVecs > 1) return plain_panels_at_once(tokens);
    if (kSignedBytes || tokens < 3) return 1;
    if (kIsDecoded) return kPanelsDecoded;
    return tokens < 5 || tokens > 8 ? 2 : 3;
  }

  static constexpr int kGroup = Panel::kGroup;
  static constexpr bool kSigned = Panel::kSigned && kSignedBytes;
  /// What the bytes have too much; sums begin at what it adds, taken off.
  static constexpr int kBias = kSignedBytes ? Panel::kIntegerBias : Panel::kSigned ? 128 : Panel::kStoredBias;
  /// Zeros come off the integers: of a decoded panel off its bytes, else off what a sum begins at.
  static constexpr bool kTakesZero = !kSignedBytes && Panel::kHasZero && !Panel::kSigned;
  static constexpr bool kHasMin = (kSignedBytes ? Panel::kHasMin : Panel::kHasOwnMin) && !kTakesZero;

  /// Products with signs take most of their time for the signs.
  static constexpr bool kDecodesOnce = !kIsDecoded && !kSigned;
  using Decoded = Int8Product<DecodedPanel<kGroup, kHasMin, kUnsignedTokens, kUnsignedTokens ? 0 : kBias,
                                           kUnsignedTokens ? 0 : Panel::kMaxInteger>>;
  static constexpr bool kHasStarts = kIsDecoded && kUnsignedTokens;
  static constexpr int64_t panel_bytes(int64_t cols) { return cols / kGroup * Panel::kShare; }

  static void decode(const std::byte* panel, int64_t cols, std::byte* out) {
    const auto put = [&out](auto v) {
      store_as(out, v);
      out += sizeof(v);
    };
    for (int64_t g = 0; g < cols / kGroup; ++g) {
      Sums sum{}, excess;
      for (int i = 0; i < kVecs; ++i) {
        excess.v[i] = static_cast<int32_t>(kBias * 0x01010101u) - VecI{};
        if constexpr (kTakesZero) excess.v[i] = repeat_byte(Panel::zero(panel, g, i));
      }
      for (int w = 0; w < kGroup / 8; ++w) {
        const typename Panel::Word word = Panel::load(panel, g, w);
        for (int half = 0; half < 2; ++half) {
          for (int i = 0; i < kVecs; ++i) {
            const VecI stored = bytes(word, i, half);
            const VecI b = kUnsignedTokens ? subtract_bytes(stored, excess.v[i]) : stored;
            put(b);
            if constexpr (kUnsignedTokens) sum.v[i] = add_dot<false>(sum.v[i], 0x01010101 - VecI{}, b);
          }
        }
      }
      put(Panel::scale(panel, g));
      if constexpr (kHasMin) put(Panel::min(panel, g));
      if constexpr (kUnsignedTokens)
        for (int i = 0; i < kVecs; ++i) put(kSumStart - (sum.v[i] << 7));
    }
  }

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
      const int64_t groups = first_token * (tokens.cols / kSumGroup);
      const int64_t at = g * kGroup / kSumGroup * T;
      scales = tokens.q_scales + 2 * (groups + at);
      sums = tokens.sums + groups + at;
      q_sums = tokens.q_sums + 2 * groups + g * kGroup / 16 * T;
    }
    LMD_INLINE int32_t q_sum(int t) const { return kGroup == 16 ? q_sums[t] : q_sums[t] + q_sums[T + t]; }
    LMD_INLINE VecF scale(int t) const { return splat(scales[t]); }
    LMD_INLINE VecF offset(int t) const { return splat(scales[T + t]); }
  };

  /// Vector i of the even or odd columns of a word, unsigned where products want that.
  static LMD_INLINE VecI bytes(const typename Panel::Word& word, int i, int half) {
    const VecI stored = Panel::bytes(word, i, half);
    return Panel::kSigned && !kSignedBytes ? stored ^ static_cast<int32_t>(0x80808080u) : stored;
  }

  /// sums[p][t] += the products of words [first, end) of group g.
  template <int P, int T>
  static LMD_INLINE void add_words(Sums (&sums)[P][T], const Group<T>& group,
                                   const std::byte* const (&panels)[P], int64_t g, int first, int end) {
#pragma GCC unroll 1  // unrolled, GCC 12 multiplies far ahead and spills
    for (int w = first; w < end; ++w) {
      typename Panel::Word word[P];
      for (int p = 0; p < P; ++p) word[p] = Panel::load(panels[p], g, w);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        Sums v[P];
        for (int p = 0; p < P; ++p)
          for (int i = 0; i < kVecs; ++i) v[p].v[i] = bytes(word[p], i, half);
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
          const VecI x = splat_bytes(group.q + ((2 * w + half) * T + t) * 4);
#pragma GCC unroll 8
          for (int p = 0; p < P; ++p) {
            for (int i = 0; i < kVecs; ++i) {
              VecI& sum = sums[p][t].v[i];
              if constexpr (kHasStarts) {
                sum = add_dot<false>(sum, x, v[p].v[i]);
              } else {
                sum = add_dot<kSigned>(sum, v[p].v[i], x);
              }
              keep_order(sum);
            }
          }
        }
      }
    }
  }

  /// sums[p][t] = the bits of 1.5f + the sum over the columns of group g.
  template <int P, int T>
  static LMD_INLINE void group_sums(Sums (&sums)[P][T], const Group<T>& group,
                                    const std::byte* const (&panels)[P], int64_t g) {
    constexpr int kWords = kGroup / 8;
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const VecI start = kSumStart - (kBias == 0 ? 0 : kBias * group.q_sum(t)) - VecI{};
      for (int p = 0; p < P; ++p) {
        for (int i = 0; i < kVecs; ++i) {
          if constexpr (kHasStarts) {
            sums[p][t].v[i] = Panel::start(panels[p], g, i);
          } else if constexpr (kTakesZero) {
            sums[p][t].v[i] = add_short_product(start, Panel::zero(panels[p], g, i), -group.q_sum(t));
          } else {
            sums[p][t].v[i] = start;
          }
        }
      }
    }
    if constexpr (kRunIsSum<kSigned>) {
      add_words<P, T>(sums, group, panels, g, 0, kWords);
    } else {
      constexpr int kRun = kRunSteps<Panel> / 2 < kWords ? kRunSteps<Panel> / 2 : kWords;
      static_assert(kWords % kRun == 0);
      for (int first = 0; first < kWords; first += kRun) {
        Sums run[P][T] = {};
        add_words<P, T>(run, group, panels, g, first, first + kRun);
        for (int p = 0; p < P; ++p)
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t)
            for (int i = 0; i < kVecs; ++i) sums[p][t].v[i] += finish_run(run[p][t].v[i]);
      }
    }
  }

  /// The end of group g of all panels and tokens.
  template <int P, int T>
  static LMD_INLINE void add_group(Row16 (&totals)[P][T], const Sums (&sums)[P][T], const Group<T>& group,
                                   const std::byte* const (&panels)[P], int64_t g) {
    constexpr bool kInMemory = kVecs == 1 && !kIsDecoded && P * T > kTokenTile;
    Row16 scale[P], min[P];
    for (int p = 0; p < P; ++p) {
      if constexpr (kHasMin) min[p] = Panel::min(panels[p], g);
      scale[p] = Panel::scale(panels[p], g);
    }
#pragma GCC unroll 12
    for (int t = 0; t < T; ++t) {
      const VecF token_scale = group.scale(t), offset = group.offset(t);
#pragma GCC unroll 8
      for (int p = 0; p < P; ++p) {
        for (int i = 0; i < kVecs; ++i) {
          VecF& total = totals[p][t].v[i];
          if constexpr (kInMemory) keep_in_memory(total);
          const VecF sum = fma(bit_cast_to<VecF>(sums[p][t].v[i]), token_scale, offset);
          VecF next = fma(scale[p].v[i], sum, total);
          if constexpr (kHasMin) next = fma(min[p].v[i], splat(group.sums[t]), next);
          total = next;
          if constexpr (kInMemory) keep_in_memory(total);
        }
      }
    }
  }

  /// What P panels side by side ask for of their own bytes. Behind the end of a panel comes the one P panels
  /// further on: those between are being read.
  template <int P, int T>
  class Near {
   public:
    explicit LMD_INLINE Near(int64_t panel_bytes) : panel_bytes_(panel_bytes) {
      const int64_t ends = kDistance / panel_bytes;
      at_ = kDistance + ends * (P - 1) * panel_bytes;
      left_ = (ends + 1) * panel_bytes - kDistance;
    }
    LMD_INLINE void ask(const std::byte* const (&panels)[P], int64_t g) {
      if constexpr (kVecs > 1) {
        for (int p = 0; p < P; ++p) Panel::template prefetch<P, T>(panels[p], g);
      } else {
        for (int p = 0; p < P; ++p)
          for (int64_t i = 0; i < Panel::kShare; i += 64)
            __builtin_prefetch(panels[p] + at_ + g * Panel::kShare + i, 0, kAsksFar<T> ? 2 : 3);
        left_ -= Panel::kShare;
        if (left_ <= 0) {
          left_ += panel_bytes_;
          at_ += (P - 1) * panel_bytes_;
        }
      }
    }

   private:
    static constexpr int64_t kDistance = kAsksFar<T> && P > 1 ? 8 * Panel::kShare : kAskAhead<T>;
    int64_t panel_bytes_, at_, left_;
  };

  /// With group g for token g. Of a long prompt it is not in the cache, and stores that wait for it would
  /// hold up those of the next totals.
  template <int P, int T>
  static LMD_INLINE void ask_for_output(const LinearRange& r, int64_t first_panel, int64_t first_token,
                                        int64_t g) {
    if (g >= T) return;
    const float* out = r.out + (first_token + g) * r.out_stride + first_panel * kPanelRows;
    for (int p = 0; p < P; ++p) __builtin_prefetch(out + p * kPanelRows, 0, 2);
  }

  // Inlined where it has one caller, GCC 12 spills: AVX2 and decoded panels of 5 and 6 bits half as fast.
  template <int P, int T>
  __attribute__((noinline)) static void stream(const LinearRange& r, int64_t first_panel, int64_t first_token,
                                               Ahead& ahead) {
    const int64_t num_groups = r.tokens.cols / kGroup;
    const std::byte* panels[P];
    for (int p = 0; p < P; ++p) panels[p] = r.panels + (first_panel + p) * r.panel_bytes;
    Near<P, T> near(r.panel_bytes);
    const int64_t ahead_bytes = (ahead.end - ahead.next) / num_groups + 1;
    Row16 totals[P][T] = {};
    for (int64_t g = 0; g < num_groups; ++g) {
      const Group<T> group(r.tokens, first_token, g);
      ask_for_output<P, T>(r, first_panel, first_token, g);
      if (kIsDecoded || ahead.next != nullptr) {
        ahead.ask(ahead_bytes);
      } else if constexpr (!kIsDecoded) {
        near.ask(panels, g);
      }
      Sums sums[P][T];
      group_sums<P, T>(sums, group, panels, g);
      add_group<P, T>(totals, sums, group, panels, g);
    }
    for (int p = 0; p < P; ++p)
      for (int t = 0; t < T; ++t) totals[p][t] = totals[p][t] * 0x1p23f;
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
