// norm and add_norm against the reference.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct NormCase {
  int64_t tokens;
  int64_t hidden;
  Fill fill = Fill::kOrdinary;
  int64_t padding = 0;  // elements between rows
  NormOptions options = {};
  uint64_t seed = 1;
};

// An f32 sum of n positive terms (sqrt(n) rule: Higham 2002, ch. 4), and the roundings of rsqrt, the products
// and the result.
double bound(int64_t n, double want) {
  return std::abs(want) * (std::sqrt(static_cast<double>(n)) + 8) * kF32Epsilon;
}

class NormTest : public ::testing::TestWithParam<std::tuple<CpuIsa, NormCase>> {};

TEST_P(NormTest, MatchesReference) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens, c.hidden, c.fill, c.padding);
  const TestTensor weight = random_tensor(rng, DType::kF32, 1, c.hidden);
  const ConstTensorView w(weight.view().data(), DType::kF32, {c.hidden});
  const TestTensor want(DType::kF64, c.tokens, c.hidden), got(DType::kF32, c.tokens, c.hidden, c.padding);
  ref_kernels().norm(want, x, w, c.options);
  cpu_kernels(isa).norm(got, x, w, c.options);
  expect_close(got, want, [&](int64_t, int64_t, double v) { return bound(c.hidden, v); });
  got.expect_padding_untouched();
}

TEST_P(NormTest, WorksInPlace) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens, c.hidden, c.fill, c.padding);
  const TestTensor weight = random_tensor(rng, DType::kF32, 1, c.hidden);
  const ConstTensorView w(weight.view().data(), DType::kF32, {c.hidden});
  const TestTensor apart(DType::kF32, c.tokens, c.hidden);
  cpu_kernels(isa).norm(apart, x, w, c.options);
  cpu_kernels(isa).norm(x, x, w, c.options);
  expect_bit_equal(x.view(), apart.view());
}

TEST_P(NormTest, AddsTheResidualFirst) {
  const auto& [isa, c] = GetParam();
  LMD_REQUIRE_ISA(isa);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens, c.hidden, c.fill, c.padding);
  const TestTensor residual = random_tensor(rng, DType::kF32, c.tokens, c.hidden, c.fill, c.padding);
  const TestTensor weight = random_tensor(rng, DType::kF32, 1, c.hidden);
  const ConstTensorView w(weight.view().data(), DType::kF32, {c.hidden});
  const TestTensor sum(DType::kF32, c.tokens, c.hidden), want(DType::kF64, c.tokens, c.hidden);
  ref_kernels().add(sum, residual, x);  // one rounding to f32, as the op's residual has
  ref_kernels().norm(want, sum, w, c.options);
  const TestTensor got(DType::kF32, c.tokens, c.hidden, c.padding);
  cpu_kernels(isa).add_norm(got, residual, x, w, c.options);
  expect_bit_equal(residual.view(), sum.view());
  expect_close(got, want, [&](int64_t, int64_t, double v) { return bound(c.hidden, v); });
}

constexpr NormCase kCases[] = {
    {0, 8},
    {1, 1},
    {1, 7},
    {1, 8, Fill::kEqual},
    {2, 9},
    {1, 15},
    {5, 16},
    {3, 17, Fill::kOrdinary, 3},
    {2, 101, Fill::kTiny},
    {2, 101, Fill::kHuge},
    {37, 576, Fill::kOrdinary, 16},  // SmolLM2-135M
    {4, 2048, Fill::kOrdinary, 0, {.eps = 1e-5f, .offset = 1}},
};

INSTANTIATE_TEST_SUITE_P(Cases, NormTest,
                         ::testing::Combine(::testing::ValuesIn(kAllIsas), ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           const NormCase& c = std::get<1>(test.param);
                           return cat(std::get<0>(test.param), "_", c.tokens, "x", c.hidden, "_", c.fill,
                                      "_pad", c.padding, "_seed", c.seed);
                         });

TEST(RefAddNorm, IsAddThenNorm) {
  Rng rng(5);
  const TestTensor x = random_tensor(rng, DType::kF64, 3, 11),
                   residual = random_tensor(rng, DType::kF64, 3, 11);
  const TestTensor weight = random_tensor(rng, DType::kF32, 1, 11);
  const ConstTensorView w(weight.view().data(), DType::kF32, {11});
  const TestTensor sum(DType::kF64, 3, 11), want(DType::kF64, 3, 11), got(DType::kF64, 3, 11);
  ref_kernels().add(sum, residual, x);
  ref_kernels().norm(want, sum, w, {});
  ref_kernels().add_norm(got, residual, x, w, {});
  expect_bit_equal(got.view(), want.view());
  expect_bit_equal(residual.view(), sum.view());
}

}  // namespace
}  // namespace lmdeploy
