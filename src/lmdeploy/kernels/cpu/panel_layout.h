// How weights lie in memory for the CPU kernels: panels of 16 rows, so that one vector holds the same column
// of 16 (or 8, or 4) rows and a dot product needs no sum across lanes. All instruction sets share the layout.
//
// A panel is a run of units along the columns:
//   f32, f16         a unit is one column: 16 values
//   bf16             a unit is a pair of columns: [16 rows][2]; an odd last column has zeros beside it
//   quantised        a unit is one block of each of the 16 rows, cut into planes; scales stay as wide, but
//                    the 6-bit ones of the K kinds become bytes
// 8-bit integers are bytes in words of four columns: word 2i holds columns 8i, 8i + 2, 8i + 4 and 8i + 6 of
// a row, word 2i + 1 those between. Codes of 8-bit floats: kF8G64Unit. The others keep 4 low bits, 1 or 2
// high bits, in planes of 32-bit words [word][16]: a word holds 32 / bits columns of one row, column k at bit
// plane_bit(k, bits). So the low bits of 8 columns lie in one word, each four bits above the one before, and
// their high bits at the same distances in another: columns can be masked out of the words without a shift
// (isa/panels.h).
//
// Plain constants only: this header is compiled for several instruction sets.
#pragma once

#include <cstdint>

namespace lmdeploy::cpu {

constexpr int64_t kPanelRows = 16;

/// First bit of a column in its word, for planes of 1, 2 or 4 bits.
constexpr int plane_bit(int64_t column, int bits) {
  return static_cast<int>(4 * (column % 8) + bits * (column / 8 % (4 / bits)));
}

/// Byte offsets in a unit; -1: the kind has no such plane.
struct UnitLayout {
  int64_t columns;  // of a unit
  int64_t group;    // columns of a partial sum; they share a scale
  int low_bits;     // the lower bits of each integer, at offset 0: 4, or 8 for bytes
  int high_bits;    // the rest, or 0
  int64_t high;     // plane of high bits
  int64_t scale;    // [groups][16] i8 (K kinds), else [16] f16
  int64_t min;      // [groups][16] u8 (K kinds), else [16] f16
  int64_t d;        // K kinds: [16] f16
  int64_t dmin;     // K kinds: [16] f16
  int64_t zero;     // integers in groups: [16] i16, and the scale is [16] f32
  int64_t bytes;    // of a unit
};

constexpr UnitLayout kQ4_0Unit = {.columns = 32,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 0,
                                  .high = -1,
                                  .scale = 256,
                                  .min = -1,
                                  .d = -1,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 288};
constexpr UnitLayout kQ4_1Unit = {.columns = 32,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 0,
                                  .high = -1,
                                  .scale = 256,
                                  .min = 288,
                                  .d = -1,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 320};
constexpr UnitLayout kQ5_0Unit = {.columns = 32,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 1,
                                  .high = 256,
                                  .scale = 320,
                                  .min = -1,
                                  .d = -1,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 352};
constexpr UnitLayout kQ5_1Unit = {.columns = 32,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 1,
                                  .high = 256,
                                  .scale = 320,
                                  .min = 352,
                                  .d = -1,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 384};
constexpr UnitLayout kQ8_0Unit = {.columns = 32,
                                  .group = 32,
                                  .low_bits = 8,
                                  .high_bits = 0,
                                  .high = -1,
                                  .scale = 512,
                                  .min = -1,
                                  .d = -1,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 544};
constexpr UnitLayout kQ4_KUnit = {.columns = 256,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 0,
                                  .high = -1,
                                  .scale = 2048,
                                  .min = 2176,
                                  .d = 2304,
                                  .dmin = 2336,
                                  .zero = -1,
                                  .bytes = 2368};
constexpr UnitLayout kQ5_KUnit = {.columns = 256,
                                  .group = 32,
                                  .low_bits = 4,
                                  .high_bits = 1,
                                  .high = 2048,
                                  .scale = 2560,
                                  .min = 2688,
                                  .d = 2816,
                                  .dmin = 2848,
                                  .zero = -1,
                                  .bytes = 2880};
constexpr UnitLayout kQ6_KUnit = {.columns = 256,
                                  .group = 16,
                                  .low_bits = 4,
                                  .high_bits = 2,
                                  .high = 2048,
                                  .scale = 3072,
                                  .min = -1,
                                  .d = 3328,
                                  .dmin = -1,
                                  .zero = -1,
                                  .bytes = 3360};

/// `columns` integers of `bits` bits that share a scale and a zero.
constexpr UnitLayout integer_group_unit(int64_t columns, int bits) {
  const int low_bits = bits == 8 ? 8 : 4;
  const int64_t high = columns * kPanelRows * low_bits / 8;
  const int64_t scale = high + columns * kPanelRows * (bits - low_bits) / 8;
  return {.columns = columns,
          .group = 32,
          .low_bits = low_bits,
          .high_bits = bits - low_bits,
          .high = bits > low_bits ? high : -1,
          .scale = scale,
          .min = -1,
          .d = -1,
          .dmin = -1,
          .zero = scale + 4 * kPanelRows,
          .bytes = scale + 6 * kPanelRows};
}
constexpr UnitLayout kU4G32Unit = integer_group_unit(32, 4), kU4G128Unit = integer_group_unit(128, 4);
constexpr UnitLayout kU5G32Unit = integer_group_unit(32, 5), kI8G64Unit = integer_group_unit(64, 8);
/// Codes of e4m3 as f16 bits want them: [32 pairs of columns][16 rows] words of 16 bits, column 2i in the
/// upper byte. The scale is [16] f32; a code of NaN makes its group's scale NaN.
constexpr UnitLayout kF8G64Unit = {.columns = 64,
                                   .group = 64,
                                   .low_bits = 8,
                                   .high_bits = 0,
                                   .high = -1,
                                   .scale = 1024,
                                   .min = -1,
                                   .d = -1,
                                   .dmin = -1,
                                   .zero = -1,
                                   .bytes = 1024 + 4 * kPanelRows};

/// Panels that are decoded once for many tokens (isa/panels.h), group after group: bytes in words as those of
/// 8-bit integers, then up to three times [16] words of 32 bits.
constexpr int64_t decoded_group_bytes(int64_t columns, int words) {
  return kPanelRows * (columns + 4 * words);
}
constexpr int kPanelsDecoded = 2;  // at once, at most
/// Bytes for them: groups of 16 columns have two words, those of 32 three.
constexpr int64_t decoded_scratch(int64_t cols) { return kPanelsDecoded * kPanelRows * (cols + cols / 2); }

}  // namespace lmdeploy::cpu
