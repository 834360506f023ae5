// How a device with tensor cores keeps quantised weights of 4 and 8 bits: in the order in which a warp
// multiplies them. Codes of 8-bit floats are kept as integers are.
//
// Tiles of 16 rows, one after the other; a tile is cut into units of columns. A unit holds its integers, 16
// bytes for each lane at a time, and after them what they stand for, for each row and group of columns. Rows
// and columns are filled up with parameters of 0. Same bits a weight as in the file, or a few less.
#pragma once

#include <cstdint>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy::cuda {

/// What a group's integers stand for.
enum class GroupScale : uint8_t {
  kScale,      // scale * (q - middle): f16
  kScaleMin,   // scale * q + min: two f16
  kScaleZero,  // scale * (q - zero): f32 without its last 9 bits, in whose place the zero (0 to 511) is.
               // Scales of f16 and bf16 are kept exactly, others to 2^-15.
  kE4M3,       // scale * value of q, a code of an 8-bit float: f32, NaN where a code of the group is NaN
};
constexpr int bytes_of(GroupScale scale) { return scale == GroupScale::kScale ? 2 : 4; }

struct IntegerFormat {
  int bits = 0;   // 4 or 8; 0: none, rows are as in the file
  int group = 0;  // columns
  GroupScale scale = GroupScale::kScale;

  constexpr bool exists() const { return bits != 0; }
  constexpr int unit_cols() const { return bits == 4 ? 128 : 64; }
  constexpr int unit_codes() const { return 16 * unit_cols() * bits / 8; }  // bytes
  constexpr int unit_bytes() const { return unit_codes() + 16 * (unit_cols() / group) * bytes_of(scale); }
  /// A tile's bytes / 16.
  constexpr int64_t row_bytes(int64_t cols) const {
    return (cols + unit_cols() - 1) / unit_cols() * unit_bytes() / 16;
  }
  constexpr bool operator==(const IntegerFormat&) const = default;
};

constexpr IntegerFormat integer_format(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return {4, 32, GroupScale::kScale};
    case DType::kQ4_1:
      return {4, 32, GroupScale::kScaleMin};
    case DType::kQ8_0:
      return {8, 32, GroupScale::kScale};
    case DType::kU4G32:
      return {4, 32, GroupScale::kScaleZero};
    case DType::kU4G128:
      return {4, 128, GroupScale::kScaleZero};
    case DType::kU5G32:
      return {8, 32, GroupScale::kScaleZero};
    case DType::kI8G64:
      return {8, 64, GroupScale::kScaleZero};
    case DType::kF8G64:
      return {8, 64, GroupScale::kE4M3};
    default:
      return {};
  }
}

}  // namespace lmdeploy::cuda
