// All 256 codes of both kinds against their definition.
#include "lmdeploy/core/float8.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lmdeploy {
namespace {

// sign, exponent and mantissa as the OCP specification (8-bit floating point, 2023) puts them together.
double by_definition(int code, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (code >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double fraction = (code & ((1 << mantissa_bits) - 1)) / std::ldexp(1, mantissa_bits);
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(Float8, EveryE4M3) {
  for (int code = 0; code < 256; ++code) {
    const float got = to_float(F8E4M3{static_cast<uint8_t>(code)});
    if ((code & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(got)) << code;
    } else {
      EXPECT_EQ(got, by_definition(code, 4, 3)) << code;
      EXPECT_EQ(std::signbit(got), code >= 128) << code;
    }
  }
  EXPECT_EQ(to_float(F8E4M3{0x7e}), 448);
}

TEST(Float8, EveryE5M2) {
  for (int code = 0; code < 256; ++code) {
    const float got = to_float(F8E5M2{static_cast<uint8_t>(code)});
    EXPECT_EQ(std::signbit(got), code >= 128) << code;
    if ((code & 0x7c) != 0x7c) {
      EXPECT_EQ(got, by_definition(code, 5, 2)) << code;
    } else if ((code & 3) == 0) {
      EXPECT_TRUE(std::isinf(got)) << code;
    } else {
      EXPECT_TRUE(std::isnan(got)) << code;
    }
  }
  EXPECT_EQ(to_float(F8E5M2{0x7b}), 57344);
}

}  // namespace
}  // namespace lmdeploy
