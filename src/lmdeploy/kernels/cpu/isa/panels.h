// Readers of packed panels (panel_layout.h), one struct per kind. A reader gives a panel's columns as f32
// integers, some times a power of 16 (has_shifted_columns), or as bytes, four columns to a lane, and the
// scale and min of each group; linear.cc and linear_int8.cc do the rest.
#pragma once

#include "lmdeploy/kernels/cpu/isa/simd.h"
#include "lmdeploy/kernels/cpu/panel_layout.h"

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

/// Asks for what a thread reads soon. Many tokens leave time for the second cache; few don't, but want the
/// first one (Q8_0 times 8 tokens 57 and 73 % of the products' limit, times 1 30 and 22 GB/s).
template <int T>
constexpr bool kAsksFar = kVecs == 1 && T > 4;
template <int T>
constexpr int64_t kAskAhead = kAsksFar<T> ? 8192 : 4096;  // bytes further on
template <int T>
LMD_INLINE void ask_for(const std::byte* at) {
  __builtin_prefetch(at + kAskAhead<T>, 0, kAsksFar<T> ? 2 : 3);
}

/// Kinds without scales: a word is one column. kGroup is the length of a partial sum.
struct F32Panel {
  static constexpr int kGroup = 256;
  static constexpr int kWord = 1;  // columns of a word
  static constexpr int kWordBytes = 64;
  static constexpr bool kScaled = false;
  static constexpr bool kHasMin = false;
  static constexpr bool kShifted = false;
  using Word = Row16;
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load16(reinterpret_cast<const float*>(panel) + (group * kGroup + word) * kPanelRows);
  }
  static LMD_INLINE Row16 column(const Word& word, int) { return word; }
  template <int P, int T>
  static LMD_INLINE void prefetch(const std::byte*, int64_t) {}
};

struct F16Panel : F32Panel {
  static constexpr int kWordBytes = 32;
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load16_f16(panel + (group * kGroup + word) * kPanelRows * 2);
  }
};

/// A word is a pair of columns, the first in the lower halves.
struct BF16Panel : F32Panel {
  static constexpr int kWord = 2;
  using Word = Word16;
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    return load_words(panel + (group * kGroup / 2 + word) * 64);
  }
  static LMD_INLINE Row16 column(const Word& word, int j) {
    Row16 r;
    for (int i = 0; i < kVecs; ++i)
      r.v[i] = bit_cast_to<VecF>(j == 0 ? word.v[i] << 16 : word.v[i] & 0xffff0000u);
    return r;
  }
};

/// Scales of a quantised kind. kBias is what the stored integers have too much; where `kBiasInMin`, it is
/// taken off as a min: one multiply-add a group in place of a subtraction a column. So are zeros. Sums of
/// VNNI begin at what it or the zero of a few bits adds instead.
template <const UnitLayout& kUnit, int kBias, bool kBiasInMin>
struct QuantPanel {
  static constexpr bool kIsDecoded = false;
  static constexpr int kGroup = static_cast<int>(kUnit.group);
  static constexpr int kGroups = static_cast<int>(kUnit.columns / kUnit.group);  // in a unit
  static constexpr bool kScaled = true;
  static constexpr bool kHasZero = kUnit.zero >= 0;
  static constexpr bool kHasOwnMin = kUnit.min >= 0 || kHasZero;
  static constexpr bool kHasMin = kHasOwnMin || kBiasInMin;
  static constexpr bool kIsK = kUnit.d >= 0;
  static constexpr int64_t kShare = kUnit.bytes / kGroups;  // bytes of a group, if they all lay together

  static LMD_INLINE const std::byte* unit(const std::byte* panel, int64_t group) {
    return panel + group / kGroups * kUnit.bytes;
  }

  /// Asks for a group's share of bytes further on, for P panels side by side times T tokens: the planes of a
  /// large unit are read side by side, which the processor does not see as streams (Q4_K 57 to 92 % of the
  /// read bandwidth, Q6_K 40 to 85 %). Nor does it read far enough ahead where one panel is read alone (Q4_0
  /// times 8 tokens 44 to 63 % of the products' limit); where several are, asking costs more than it gains.
  template <int P, int T>
  static LMD_INLINE void prefetch(const std::byte* panel, int64_t group) {
    if constexpr (kGroups > 1 || P == 1)
      for (int64_t i = 0; i < kShare; i += 64) ask_for<T>(panel + group * kShare + i);
  }

  static LMD_INLINE Row16 scale(const std::byte* panel, int64_t group) {
    const std::byte* base = unit(panel, group);
    if constexpr (kHasZero) return load16(reinterpret_cast<const float*>(base + kUnit.scale));
    if constexpr (!kIsK) return load16_f16(base + kUnit.scale);
    return load16_f16(base + kUnit.d) * load16_i8(base + kUnit.scale + group % kGroups * kPanelRows);
  }

  static LMD_INLINE Row16 min(const std::byte* panel, int64_t group) {
    const std::byte* base = unit(panel, group);
    if constexpr (kBiasInMin) return scale(panel, group) * static_cast<float>(-kBias);
    if constexpr (kHasZero) return scale(panel, group) * load16_i16(base + kUnit.zero) * -1.0f;
    if constexpr (!kIsK) return load16_f16(base + kUnit.min);
    return load16_f16(base + kUnit.dmin) * load16_u8(base + kUnit.min + group % kGroups * kPanelRows) * -1.0f;
  }

  /// Vector i of the zeros.
  static LMD_INLINE VecI zero(const std::byte* panel, int64_t group, int i) {
    return widen(load_as<VecI16>(unit(panel, group) + kUnit.zero + i * 2 * kLanes));
  }
};

/// Kinds of 8 bits: a word is 8 columns, the even ones and the odd ones.
template <const UnitLayout& kUnit>
struct BytePanel : QuantPanel<kUnit, 0, false> {
  using Base = QuantPanel<kUnit, 0, false>;
  static constexpr int kWord = 8;
  static constexpr bool kShifted = false;
  static constexpr int kMaxInteger = 128;  // its magnitude
  static constexpr bool kSigned = true;
  static constexpr int kStoredBias = 0;
  static constexpr int kIntegerBias = 0;

  struct Word {
    Word16 half[2];
  };
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    const std::byte* at =
        Base::unit(panel, group) + (group % Base::kGroups * (Base::kGroup / 8) + word) * 128;
    return {{load_words(at), load_words(at + 64)}};
  }
  static LMD_INLINE Row16 column(const Word& word, int j) {
    Row16 r;
    for (int i = 0; i < kVecs; ++i)
      r.v[i] = to_f32(bit_cast_to<VecI>(word.half[j % 2].v[i] << (24 - j / 2 * 8)) >> 24);
    return r;
  }
  static LMD_INLINE VecI bytes(const Word& word, int i, int half) {
    return bit_cast_to<VecI>(word.half[half].v[i]);
  }
};

/// 8-bit floats: a word is a pair of columns. Columns arrive times 2^-8 (exact: e4m3's least is 2^-9), which
/// the scale makes up for, so that products of x above 2^-109 are as exact as in any f32.
struct F8Panel : QuantPanel<kF8G64Unit, 0, false> {
  static constexpr int kWord = 2;
  static constexpr bool kShifted = false;

  struct Word {
    VecU16 v[kVecs];
  };
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    const std::byte* at = unit(panel, group) + word * 2 * kPanelRows;
    Word w;
    for (int i = 0; i < kVecs; ++i) w.v[i] = load_as<VecU16>(at + i * 2 * kLanes);
    return w;
  }
  static LMD_INLINE Row16 column(const Word& word, int j) {
    Row16 r;
    for (int i = 0; i < kVecs; ++i) r.v[i] = e4m3_to_f32(j == 0 ? word.v[i] : word.v[i] << 8);
    return r;
  }
  static LMD_INLINE Row16 scale(const std::byte* panel, int64_t group) {
    return load16(reinterpret_cast<const float*>(unit(panel, group) + kF8G64Unit.scale)) * 0x1p8f;
  }
};

/// Kinds of 4 low bits and perhaps high bits: a word is 8 columns.
template <const UnitLayout& kUnit, int kBias = 0, bool kBiasInMin = false>
struct NibblePanel : QuantPanel<kUnit, kBias, kBiasInMin> {
  using Base = QuantPanel<kUnit, kBias, kBiasInMin>;
  static constexpr int kWord = 8;
  static constexpr bool kShifted = true;
  static constexpr uint32_t kHighMask = ((1u << kUnit.high_bits) - 1) << 4;
  static constexpr int kMaxInteger = (16 << kUnit.high_bits) - 1;
  static constexpr bool kSigned = false;
  static constexpr int kStoredBias = kBias;
  static constexpr int kIntegerBias = kBiasInMin ? 0 : kBias;

  struct Word {
    Word16 low;
    Word16 high;    // column j at bit 4 j + shift
    Word16 turned;  // the same, column j < 7 four bits above its low bits, column 7 at bit 0
    int shift;
  };

  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    const std::byte* base = Base::unit(panel, group);
    const int64_t at = group % Base::kGroups * (Base::kGroup / 8) + word;  // word of the plane
    Word w;
    w.low = load_words(base + at * 64);
    if constexpr (kUnit.high_bits > 0) {
      constexpr int kShare = 4 / kUnit.high_bits;  // low words that share a high word
      w.shift = static_cast<int>(at % kShare) * kUnit.high_bits;
      w.high = load_words(base + kUnit.high + at / kShare * 64);
      for (int i = 0; i < kVecs; ++i)
        w.turned.v[i] = (w.high.v[i] << (4 - w.shift)) | (w.high.v[i] >> (28 + w.shift));
    }
    return w;
  }

  static LMD_INLINE VecI integer(const Word& word, int i, int j) {
    VecU q = j == 7 ? word.low.v[i] >> 28 : word.low.v[i] & (15u << (4 * j));
    if constexpr (kUnit.high_bits > 0)
      q |= j == 7 ? (word.turned.v[i] << 4) & kHighMask : word.turned.v[i] & (kHighMask << (4 * j));
    const VecI whole = bit_cast_to<VecI>(q);
    return kBias == 0 || kBiasInMin ? whole : whole - (j == 7 ? kBias : kBias << (4 * j));
  }

  static LMD_INLINE Row16 column(const Word& word, int j) {
    Row16 r;
    for (int i = 0; i < kVecs; ++i) r.v[i] = to_f32(integer(word, i, j));
    return r;
  }

  /// The even (half 0) or odd columns as stored, with the bias.
  static LMD_INLINE VecI bytes(const Word& word, int i, int half) {
    VecU q = (word.low.v[i] >> (4 * half)) & 0x0f0f0f0fu;
    if constexpr (kUnit.high_bits > 0) {
      const VecU high = half == 1 ? word.high.v[i] >> word.shift : word.high.v[i] << (4 - word.shift);
      q |= high & (kHighMask * 0x01010101u);
    }
    return bit_cast_to<VecI>(q);
  }
};

/// Panels that Int8Product::decode() wrote: bytes, scales, mins if kMin, and if kStarts what sums begin at.
/// Then the bytes are signed and tokens unsigned; else they are too large by kBias.
template <int kGroupColumns, bool kMin, bool kStarts, int kBias, int kMaxByte>
struct DecodedPanel {
  static constexpr bool kIsDecoded = true;
  static constexpr int kGroup = kGroupColumns;
  static constexpr int kMaxInteger = kMaxByte;
  static constexpr bool kSigned = false;
  static constexpr int kStoredBias = kBias;
  static constexpr int kIntegerBias = kBias;
  static constexpr bool kHasZero = false;
  static constexpr bool kHasOwnMin = kMin;
  static constexpr bool kHasMin = kMin;
  static constexpr int64_t kShare = decoded_group_bytes(kGroup, 1 + kMin + kStarts);

  struct Word {
    Word16 half[2];
  };
  static LMD_INLINE Word load(const std::byte* panel, int64_t group, int64_t word) {
    const std::byte* at = panel + group * kShare + word * 128;
    return {{load_words(at), load_words(at + 64)}};
  }
  static LMD_INLINE VecI bytes(const Word& word, int i, int half) {
    return bit_cast_to<VecI>(word.half[half].v[i]);
  }
  static LMD_INLINE Row16 scale(const std::byte* panel, int64_t group) { return row(panel, group, 0); }
  static LMD_INLINE Row16 min(const std::byte* panel, int64_t group) { return row(panel, group, 1); }
  static LMD_INLINE VecI start(const std::byte* panel, int64_t group, int i) {
    return bit_cast_to<VecI>(row(panel, group, 1 + kMin).v[i]);
  }

 private:
  static LMD_INLINE Row16 row(const std::byte* panel, int64_t group, int index) {
    return load16(reinterpret_cast<const float*>(panel + group * kShare + kGroup * kPanelRows) +
                  index * kPanelRows);
  }
};

using Q8_0Panel = BytePanel<kQ8_0Unit>;
using Q4_0Panel = NibblePanel<kQ4_0Unit, 8, true>;
using Q4_1Panel = NibblePanel<kQ4_1Unit>;
using Q5_0Panel = NibblePanel<kQ5_0Unit, 16, true>;
using Q5_1Panel = NibblePanel<kQ5_1Unit>;
using Q4_KPanel = NibblePanel<kQ4_KUnit>;
using Q5_KPanel = NibblePanel<kQ5_KUnit>;
using Q6_KPanel = NibblePanel<kQ6_KUnit, 32>;  // its groups of 16 have no sums of x
using U4G32Panel = NibblePanel<kU4G32Unit>;
using U4G128Panel = NibblePanel<kU4G128Unit>;
using U5G32Panel = NibblePanel<kU5G32Unit>;
using I8G64Panel = BytePanel<kI8G64Unit>;

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
