// The 8-bit float kinds as storage types: conversions to float, which are exact.
#pragma once

#include <bit>
#include <cstdint>

#include "lmdeploy/core/half.h"

namespace lmdeploy {

/// OCP 8-bit float e4m3 ("e4m3fn"): no infinity, 0x7f and 0xff are NaN, largest 448.
struct F8E4M3 {
  uint8_t bits = 0;
};
/// OCP 8-bit float e5m2: the upper half of an IEEE 754 binary16.
struct F8E5M2 {
  uint8_t bits = 0;
};

inline float to_float(F8E5M2 value) { return to_float(F16{static_cast<uint16_t>(value.bits << 8)}); }

inline float to_float(F8E4M3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80u) << 24;
  const uint32_t exponent = (value.bits >> 3) & 15u;
  const uint32_t mantissa = value.bits & 7u;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-9
    const float magnitude = static_cast<float>(mantissa) * 0x1p-9f;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 120u) << 23) | (mantissa << 20));
}

}  // namespace lmdeploy
