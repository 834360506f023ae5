// silu_mul, add and gather_rows against the reference.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct RowsCase {
  int64_t tokens;
  int64_t cols;
  Fill fill = Fill::kOrdinary;
  int64_t padding = 0;
  uint64_t seed = 1;
};

constexpr RowsCase kCases[] = {
    {0, 8},
    {1, 1},
    {1, 3},
    {2, 4, Fill::kEqual},
    {2, 7},
    {3, 8},
    {2, 9, Fill::kOrdinary, 5},
    {1, 15},
    {1, 16},
    {2, 17, Fill::kTiny},
    {3, 101, Fill::kHuge, 2},
    {70, 1536},  // SmolLM2-135M
};

std::string name_of(const ::testing::TestParamInfo<std::tuple<CpuIsa, RowsCase>>& test) {
  const RowsCase& c = std::get<1>(test.param);
  return cat(std::get<0>(test.param), "_", c.tokens, "x", c.cols, "_", c.fill, "_pad", c.padding, "_seed",
             c.seed);
}

class ElementwiseTest : public ::testing::TestWithParam<std::tuple<CpuIsa, RowsCase>> {};

// exp is good to 2 units in the last place; the sum, the quotient, the product and the result round once
// each. Gates below -88 overflow exp(-gate): their silu, less than 2^-120, becomes 0.
TEST_P(ElementwiseTest, SiluMulMatchesReference) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens, 2 * c.cols, c.fill, c.padding);
  for (int64_t t = 0; t < c.tokens; ++t)  // gates where exp is large, small or out of range
    for (int64_t i = 0; i < c.cols && c.fill == Fill::kOrdinary; ++i)
      x.view().set(t, i, 100 * rng.uniform() - 60);
  const TestTensor want(DType::kF64, c.tokens, c.cols), got(DType::kF32, c.tokens, c.cols, c.padding);
  ref_kernels().glu(want, x, Activation::kSilu);
  cpu_kernels(isa).glu(got, x, Activation::kSilu);
  expect_close(got, want, [&](int64_t t, int64_t i, double v) {
    return std::abs(v) * 10 * kF32Epsilon + std::abs(x.at(t, c.cols + i)) * 0x1p-120 + 0x1p-149;
  });
  got.expect_padding_untouched();
}

TEST_P(ElementwiseTest, AddIsRoundedOnce) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor a = random_tensor(rng, DType::kF32, c.tokens, c.cols, c.fill, c.padding);
  const TestTensor b = random_tensor(rng, DType::kF32, c.tokens, c.cols, c.fill);
  const TestTensor want(DType::kF32, c.tokens, c.cols), got(DType::kF32, c.tokens, c.cols, c.padding);
  ref_kernels().add(want, a, b);
  cpu_kernels(isa).add(got, a, b);
  expect_bit_equal(got.view(), want.view());
  got.expect_padding_untouched();
  cpu_kernels(isa).add(a, a, b);
  expect_bit_equal(a.view(), want.view());
}

TEST_P(ElementwiseTest, GatherCopiesRows) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens + 1, c.cols, c.fill, c.padding);
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < c.tokens; ++r)
    rows.push_back(static_cast<int64_t>(rng.below(static_cast<uint64_t>(c.tokens) + 1)));
  const Tensor ids = index_tensor(DType::kI32, rows);
  const TestTensor got(DType::kF32, c.tokens, c.cols, c.padding), want(DType::kF32, c.tokens, c.cols);
  cpu_kernels(isa).gather_rows(got, x, ids);
  for (int64_t r = 0; r < c.tokens; ++r)
    for (int64_t i = 0; i < c.cols; ++i) want.view().set(r, i, x.at(rows[static_cast<size_t>(r)], i));
  expect_bit_equal(got.view(), want.view());
  ref_kernels().gather_rows(got, x, ids);
  expect_bit_equal(got.view(), want.view());
}

INSTANTIATE_TEST_SUITE_P(Cases, ElementwiseTest,
                         ::testing::Combine(::testing::ValuesIn(kAllIsas), ::testing::ValuesIn(kCases)),
                         name_of);

class NonFiniteTest : public ::testing::TestWithParam<CpuIsa> {};

TEST_P(NonFiniteTest, RowsOfNaNAndInfinityStayInTheirRows) {
  LMD_REQUIRE_ISA(GetParam());
  const Kernels& kernels = cpu_kernels(GetParam());
  Rng rng(3);
  const TestTensor x = random_tensor(rng, DType::kF32, 4, 34);
  const TestTensor clean(DType::kF32, 4, 17), got(DType::kF32, 4, 17);
  kernels.glu(clean, x, Activation::kSilu);
  const double values[] = {std::nan(""), HUGE_VAL, -HUGE_VAL};
  for (int64_t t = 0; t < 3; ++t)
    for (int64_t i = 0; i < 34; ++i) x.view().set(t, i, values[t]);
  kernels.glu(got, x, Activation::kSilu);
  EXPECT_TRUE(std::isnan(got.at(0, 3)));
  EXPECT_EQ(got.at(1, 3), HUGE_VAL);
  expect_bit_equal(got.view().slice_rows(3, 1), clean.view().slice_rows(3, 1));
}

INSTANTIATE_TEST_SUITE_P(Isas, NonFiniteTest, ::testing::ValuesIn(kAllIsas),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace lmdeploy
