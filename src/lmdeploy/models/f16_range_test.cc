#include "lmdeploy/models/f16_range.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

Tensor filled(DType dtype, std::initializer_list<double> first, int64_t rows, int64_t cols) {
  Tensor out(dtype, {rows, cols});
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) out.view().set(r, c, 0.5);
  int64_t i = 0;
  for (const double value : first) out.view().set(0, i++, value);
  return out;
}

std::string warning_of(const Tensor& weights) {
  ThreadPool threads(2);
  F16Range range;
  range.add(weights, "w", threads);
  return range.warning();
}

TEST(F16Range, NothingUpToTheLargest) {
  const double nan = std::nan("");
  EXPECT_EQ(warning_of(filled(DType::kF32, {65504, -65504, nan, -nan, 1e-30}, 3, 7)), "");
  EXPECT_EQ(warning_of(filled(DType::kBF16, {65280, -65280, nan, -nan, 1e-30}, 3, 7)), "");
  EXPECT_EQ(warning_of(filled(DType::kF16, {std::numeric_limits<double>::infinity()}, 3, 7)), "")
      << "f16 stays as it is";
  EXPECT_EQ(warning_of(Tensor(DType::kF32, {0, 7})), "");
}

TEST(F16Range, JustBeyond) {
  EXPECT_NE(
      warning_of(filled(DType::kF32, {std::nextafter(65504.0f, 1e6f)}, 3, 7)).find("1 weight is beyond"),
      std::string::npos);
  EXPECT_NE(warning_of(filled(DType::kBF16, {-65536}, 3, 7)).find("1 weight is beyond"), std::string::npos);
}

// Rows that begin anywhere, more of them than a thread takes at once.
TEST(F16Range, CountsAllAndNamesTheTensorOfTheLargest) {
  ThreadPool threads(3);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    F16Range range;
    Tensor many = filled(dtype, {}, 1000, 257);
    for (int64_t r = 0; r < 1000; r += 10) many.view().set(r, r % 257, r % 20 == 0 ? 81920 : -98304);
    range.add(filled(dtype, {70000, 65536}, 2, 3), "first", threads);
    range.add(many.view().slice_cols(0, 256), "second", threads);
    range.add(filled(dtype, {90000}, 2, 3), "third", threads);
    const std::string warning = range.warning();
    int64_t want = 3;
    for (int64_t r = 0; r < 1000; r += 10) want += r % 257 < 256 ? 1 : 0;
    EXPECT_EQ(warning.find(cat(want, " weights are beyond 65504")), 0u) << warning;
    EXPECT_NE(warning.find("the largest, 98304, is in second"), std::string::npos) << warning;
  }
}

}  // namespace
}  // namespace lmdeploy
