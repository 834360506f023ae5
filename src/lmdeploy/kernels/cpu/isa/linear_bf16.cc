// Linear with the tokens rounded to bf16 (PackedTokens::pairs) and weights in bf16: exact products, two
// columns of a row to a lane, sums in f32. The columns of a block of 256 are summed from 0, pair after pair,
// then
//   total += sum
// for any number of tokens. Numbers below 2^-126 count as 0 (Intel SDM, VDPBF16PS).
#include "lmdeploy/kernels/cpu/isa/functions.h"
#include "lmdeploy/kernels/cpu/isa/linear_loops.h"
#include "lmdeploy/kernels/cpu/isa/panels.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// sum + the products of each lane's two columns. In the order of the calls: GCC 12 otherwise computes
/// several ahead and spills the sums.
LMD_INLINE void add_pair(VecF& sum, VecU w, uint32_t x) {
  const auto pair = static_cast<int32_t>(x) - VecI{};
  sum = (VecF)_mm512_dpbf16_ps((__m512)sum, (__m512bh)w, (__m512bh)pair);
  __asm__ volatile("" : "+v"(sum));
}

/// The way of linear_loops.h in bf16.
struct BF16Product {
  static constexpr int kMinTile = 1, kMaxTile = kTokenTile;
  static constexpr bool kAsksAhead = false;
  static constexpr bool kDecodesOnce = false;
  static constexpr int panels_at_once(int tokens) { return plain_panels_at_once(tokens); }

  template <int P, int T>
  static void stream(const LinearRange& r, int64_t first_panel, int64_t first_token, Ahead&) {
    constexpr int64_t kBlockPairs = kColumnBlock / 2;
    const std::byte* panels[P];
    for (int p = 0; p < P; ++p) panels[p] = r.panels + (first_panel + p) * r.panel_bytes;
    const int64_t num_pairs = r.tokens.num_pairs();
    const uint32_t* x = r.tokens.pairs + first_token * num_pairs;
    Row16 totals[P][T] = {};
    for (int64_t first = 0; first < num_pairs; first += kBlockPairs) {
      const int64_t end = num_pairs - first < kBlockPairs ? num_pairs : first + kBlockPairs;
      Row16 sums[P][T] = {};
#pragma GCC unroll 2
      for (int64_t pair = first; pair < end; ++pair, x += T) {
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const Word16 word = load_words(panels[p] + pair * 64);
          if (P == 1) ask_for<T>(panels[p] + pair * 64);
#pragma GCC unroll 12
          for (int t = 0; t < T; ++t) add_pair(sums[p][t].v[0], word.v[0], x[t]);
        }
      }
      for (int p = 0; p < P; ++p)
        for (int t = 0; t < T; ++t) totals[p][t] = totals[p][t] + sums[p][t];
    }
    write_totals(r, first_panel, first_token, totals);
  }
};

}  // namespace

void linear_bf16(const LinearRange& range) { linear_range<BF16Product>(range); }

}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
