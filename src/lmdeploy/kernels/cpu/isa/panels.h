// Readers of packed panels (panel_layout.h), one struct per kind. A reader turns a panel's columns into the
// stored integers as f32 and gives the scale and min of each group; linear.cc does the rest.
#pragma once

#include "lmdeploy/kernels/cpu/isa/simd.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// Kinds without scales: a word is one column. kGroup is the length of a partial sum.
struct F32Panel {
  static constexpr int kGroup = 256;
  static constexpr int kWord = 1;  // columns of a word
  static constexpr bool kScaled = false;
  static constexpr bool kHasMin = false;
  using Word = Row16;
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load16(reinterpret_cast<const float*>(panel) + (group * kGroup + word) * kPanelRows);
  }
  static LMD_INLINE Row16 column(const Word& word, int) { return word; }
};

struct F16Panel : F32Panel {
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load16_f16(panel + (group * kGroup + word) * kPanelRows * 2);
  }
};

struct BF16Panel : F32Panel {
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load16_bf16(panel + (group * kGroup + word) * kPanelRows * 2);
  }
};

/// Integers of a quantised kind. kBias is taken off the stored integers; kSigned ones are in two's
/// complement.
template <const UnitLayout& kUnit, int kBias, bool kMin>
struct QuantPanel {
  static constexpr int kGroup = static_cast<int>(kUnit.group);
  static constexpr int kWord = 32 / kUnit.low_bits;
  static constexpr bool kScaled = true;
  static constexpr bool kHasMin = kMin;
  static constexpr int kGroups = static_cast<int>(kUnit.columns / kUnit.group);  // in a unit
  static constexpr bool kScales = kUnit.d >= 0;                                  // a K kind

  struct Word {
    Word16 low;
    Word16 high;  // the word's first high bits are the lowest
  };

  static LMD_INLINE const std::byte* unit(const std::byte* panel, int64_t group) {
    return panel + group / kGroups * kUnit.bytes;
  }

  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    const std::byte* base = unit(panel, group);
    const int64_t first = group % kGroups * kGroup + word * kWord;  // column in the unit
    Word w;
    w.low = load_words(base + first * kUnit.low_bits / 32 * 64);
    if constexpr (kUnit.high_bits > 0) {
      constexpr int kHighWord = 32 / kUnit.high_bits;
      w.high = load_words(base + kUnit.high + first / kHighWord * 64);
      const int shift = static_cast<int>(first % kHighWord) * kUnit.high_bits;
      for (int i = 0; i < kVecs; ++i) w.high.v[i] >>= shift;
    }
    return w;
  }

  static LMD_INLINE VecI integer(const Word& word, int i, int j) {
    if constexpr (kUnit.low_bits == 8) {
      return (bit_cast_to<VecI>(word.low.v[i]) << (24 - 8 * j)) >> 24;
    } else if constexpr (kUnit.high_bits == 0 && kBias == 8) {  // stored minus 8, two's complement
      return (bit_cast_to<VecI>(word.low.v[i]) << (28 - 4 * j)) >> 28;
    } else {
      VecU q = (word.low.v[i] >> (4 * j)) & 15u;
      if constexpr (kUnit.high_bits > 0) {
        constexpr uint32_t kMask = ((1u << kUnit.high_bits) - 1) << 4;
        const int shift = j * kUnit.high_bits - 4;
        q |= (shift < 0 ? word.high.v[i] << -shift : word.high.v[i] >> shift) & kMask;
      }
      return bit_cast_to<VecI>(q) - kBias;
    }
  }

  static LMD_INLINE Row16 column(const Word& word, int j) {
    Row16 r;
    for (int i = 0; i < kVecs; ++i) r.v[i] = to_f32(integer(word, i, j));
    return r;
  }

  static LMD_INLINE Row16 scale(const std::byte* panel, int64_t group) {
    const std::byte* base = unit(panel, group);
    if constexpr (!kScales) return load16_f16(base + kUnit.scale);
    return load16_f16(base + kUnit.d) * load16_i8(base + kUnit.scale + group % kGroups * kPanelRows);
  }

  static LMD_INLINE Row16 min(const std::byte* panel, int64_t group) {
    const std::byte* base = unit(panel, group);
    if constexpr (!kScales) return load16_f16(base + kUnit.min);
    Row16 m = load16_f16(base + kUnit.dmin) * load16_u8(base + kUnit.min + group % kGroups * kPanelRows);
    for (int i = 0; i < kVecs; ++i) m.v[i] = -m.v[i];
    return m;
  }
};

using Q4_0Panel = QuantPanel<kQ4_0Unit, 8, false>;
using Q4_1Panel = QuantPanel<kQ4_1Unit, 0, true>;
using Q5_0Panel = QuantPanel<kQ5_0Unit, 16, false>;
using Q5_1Panel = QuantPanel<kQ5_1Unit, 0, true>;
using Q8_0Panel = QuantPanel<kQ8_0Unit, 0, false>;
using Q4_KPanel = QuantPanel<kQ4_KUnit, 0, true>;
using Q5_KPanel = QuantPanel<kQ5_KUnit, 0, true>;
using Q6_KPanel = QuantPanel<kQ6_KUnit, 32, false>;

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
