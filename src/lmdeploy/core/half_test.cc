// f16 and bf16: every f16 value, and rounding against exact arithmetic.
#include "lmdeploy/core/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

// Value of an f16 by its definition (IEEE 754-2008, 3.6), independent of to_float().
double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const F16 half{static_cast<uint16_t>(bits)};
    const float value = to_float(half);
    if (((bits >> 10) & 31) == 31) {
      if ((bits & 1023) == 0) {
        EXPECT_TRUE(std::isinf(value));
        EXPECT_EQ(to_f16(value).bits, bits);
      } else {
        EXPECT_TRUE(std::isnan(value));
        EXPECT_TRUE(std::isnan(to_float(to_f16(value))));
      }
      continue;
    }
    EXPECT_EQ(value, f16_value(half.bits)) << bits;
    EXPECT_EQ(to_f16(value).bits, bits);
  }
}

TEST(Half, F16RoundsToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = f16_value(bits);
    const double high = f16_value(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);  // exact: 12 significant bits
    EXPECT_EQ(to_f16(middle).bits, (bits & 1) == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(to_f16(std::nextafter(middle, 0.0f)).bits, bits);
    EXPECT_EQ(to_f16(std::nextafter(middle, 1e9f)).bits, bits + 1);
  }
  EXPECT_EQ(to_f16(65520.0f).bits, 0x7c00);  // half way past the largest: infinity
  EXPECT_EQ(to_f16(65519.99f).bits, 0x7bff);
  EXPECT_EQ(to_f16(-1e30f).bits, 0xfc00);
}

TEST(Half, Bf16RoundsToNearestEven) {
  Rng rng(7);
  for (int i = 0; i < 100000; ++i) {
    const auto bits = static_cast<uint32_t>(rng.bits());
    const auto value = std::bit_cast<float>(bits);
    const float back = to_float(to_bf16(value));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(back));
      continue;
    }
    const auto truncated = static_cast<uint16_t>(bits >> 16);
    const uint32_t rest = bits & 0xffff;
    const bool up = rest > 0x8000 || (rest == 0x8000 && (truncated & 1) != 0);
    EXPECT_EQ(to_bf16(value).bits, static_cast<uint16_t>(truncated + (up ? 1 : 0))) << bits;
  }
}

}  // namespace
}  // namespace lmdeploy
