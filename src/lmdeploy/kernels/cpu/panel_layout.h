// How weights lie in memory for the CPU kernels: panels of 16 rows, so that one vector holds the same column
// of 16 (or 8, or 4) rows and a dot product needs no sum across lanes. All instruction sets share the layout.
//
// A panel is a run of units along the columns:
//   f32, f16, bf16   a unit is one column: 16 values
//   quantised        a unit is one block of each of the 16 rows, cut into planes; quantities stay as wide as
//   they
//                    are in the file (6-bit scales become bytes)
// A plane of b-bit integers holds one 32-bit word per row and 32/b columns: word [column / (32/b)][row], the
// first column in the lowest bits. Plain constants only: this header is compiled for several instruction
// sets.
#pragma once

#include <cstdint>

namespace lmdeploy::cpu {

constexpr int64_t kPanelRows = 16;

/// Bytes of `columns` columns of a plane of `bits`-bit integers.
constexpr int64_t plane_bytes(int64_t columns, int bits) { return kPanelRows * columns * bits / 8; }

/// Byte offsets in a unit; -1: the kind has no such plane.
struct UnitLayout {
  int64_t columns;  // of a unit
  int64_t group;    // columns that share a scale
  int low_bits;     // the lower bits of each integer, at offset 0
  int high_bits;    // the rest, or 0
  int64_t high;     // plane of high bits
  int64_t scale;    // [groups][16] i8 (K kinds), else [16] f16
  int64_t min;      // [groups][16] u8 (K kinds), else [16] f16
  int64_t d;        // K kinds: [16] f16
  int64_t dmin;     // K kinds: [16] f16
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
                                  .bytes = 3360};

}  // namespace lmdeploy::cpu
