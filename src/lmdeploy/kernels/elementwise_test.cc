// The ops that work element by element, and gather_rows, against the reference.
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

std::string name_of(const ::testing::TestParamInfo<std::tuple<Backend, RowsCase>>& test) {
  const RowsCase& c = std::get<1>(test.param);
  return cat(std::get<0>(test.param), "_", c.tokens, "x", c.cols, "_", c.fill, "_pad", c.padding, "_seed",
             c.seed);
}

class ElementwiseTest : public ::testing::TestWithParam<std::tuple<Backend, RowsCase>> {};

constexpr std::array kActivations = {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh,
                                     Activation::kQuickGelu, Activation::kRelu};

// The error of act(x), of which `want` is the value. exp is good to 2 units in the last place; the sum, the
// quotient, the products and the result round once each, and the normal tail's polynomial is good to 2 units.
// An error in the exponent is a relative one in the result: x^2 / 2 (gelu), 2 u (gelu_tanh, four roundings)
// and 1.702 x (quick_gelu) are rounded themselves. Where exp overflows or a tail is subnormal, the result is
// less than |x| 2^-120; the reference's 1 + tanh has an absolute error of 2^-53.
double activation_bound(Activation activation, double x, double want) {
  const double size = std::abs(x);
  double units = 12;
  if (activation == Activation::kRelu) return 0;
  if (activation == Activation::kGelu) units += std::min(size * size, 1e4);
  if (activation == Activation::kGeluTanh) units += 8 * (size + 0.045 * std::min(size * size * size, 1e6));
  if (activation == Activation::kQuickGelu) units += 4 * std::min(size, 1e4);
  return std::abs(want) * units * kF32Epsilon +
         size * (activation == Activation::kGeluTanh ? 0x1p-53 : 0x1p-120);
}

// Arguments where exp is large, small or out of range.
void spread(Rng& rng, TensorView x) {
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t i = 0; i < x.cols(); ++i) x.set(t, i, 110 * rng.uniform() - 65);
}

TEST_P(ElementwiseTest, ActivationsMatchReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    for (const bool wide : {false, true}) {
      Rng rng(c.seed);
      const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill, c.padding);
      if (wide) spread(rng, x);
      const TestTensor want(DType::kF64, c.tokens, c.cols),
          got(dtype_of(backend), c.tokens, c.cols, c.padding);
      ref_kernels().activate(want, x, activation);
      kernels_of(backend).activate(got, x, activation);
      expect_close(got, want, [&](int64_t t, int64_t i, double v) {
        return activation_bound(activation, x.at(t, i), v) + store_error(backend, v) + 0x1p-149;
      });
      got.expect_padding_untouched();
      kernels_of(backend).activate(x, x, activation);
      expect_bit_equal(x.view(), got.view());
    }
  }
}

TEST_P(ElementwiseTest, GluIsActivationTimesUp) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    Rng rng(c.seed);
    const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, 2 * c.cols, c.fill, c.padding);
    if (c.fill == Fill::kOrdinary) spread(rng, x.view().slice_cols(0, c.cols));
    const TestTensor want(DType::kF64, c.tokens, c.cols), got(dtype_of(backend), c.tokens, c.cols, c.padding);
    const TestTensor act(DType::kF64, c.tokens, c.cols);
    ref_kernels().glu(want, x, activation);
    ref_kernels().activate(act, x.view().slice_cols(0, c.cols), activation);
    kernels_of(backend).glu(got, x, activation);
    expect_close(got, want, [&](int64_t t, int64_t i, double v) {
      const double up = std::abs(x.at(t, c.cols + i));
      return activation_bound(activation, x.at(t, i), act.at(t, i)) * up + std::abs(v) * kF32Epsilon +
             store_error(backend, v) + 0x1p-149;
    });
    got.expect_padding_untouched();
  }
}

// As quick_gelu, times up + 1, which is rounded once: an error of at most limit + 1 units.
TEST_P(ElementwiseTest, ClampedGluMatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  constexpr float kLimit = 2;
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, 2 * c.cols, c.fill, c.padding);
  if (c.fill == Fill::kOrdinary && c.cols > 8) spread(rng, x.view().slice_cols(0, 8));
  const TestTensor want(DType::kF64, c.tokens, c.cols), got(dtype_of(backend), c.tokens, c.cols, c.padding);
  ref_kernels().clamped_glu(want, x, kLimit);
  kernels_of(backend).clamped_glu(got, x, kLimit);
  expect_close(got, want, [&](int64_t t, int64_t i, double v) {
    const double gate = std::min<double>(x.at(t, i), kLimit);
    const double act = gate / (1 + std::exp(-1.702 * gate));
    return activation_bound(Activation::kQuickGelu, gate, act) * (kLimit + 1) +
           (std::abs(act) * (kLimit + 1) + std::abs(v)) * kF32Epsilon + store_error(backend, v) + 0x1p-149;
  });
  got.expect_padding_untouched();
}

// Exact where the product is rounded once; 16-bit activations round it to f32 first.
TEST_P(ElementwiseTest, ScaleAndClampAreExact) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill, c.padding);
  const TestTensor row_factors = random_tensor(rng, DType::kF32, 1, std::max<int64_t>(1, c.tokens));
  const ConstTensorView factors(row_factors.view().data(), DType::kF32, {c.tokens});
  const auto compare = [&](const auto& op) {
    const TestTensor want(dtype_of(backend), c.tokens, c.cols),
        got(dtype_of(backend), c.tokens, c.cols, c.padding);
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t i = 0; i < c.cols; ++i)
        want.view().set(t, i, x.at(t, i)), got.view().set(t, i, x.at(t, i));
    op(ref_kernels(), want.view());
    op(kernels_of(backend), got.view());
    if (dtype_of(backend) == DType::kF32)
      expect_bit_equal(got.view(), want.view());
    else
      expect_close(got, want, [&](int64_t, int64_t, double v) { return 2 * store_error(backend, v); });
    got.expect_padding_untouched();
  };
  compare([](const Kernels& k, TensorView t) { k.scale(t, 1.7f); });
  compare([&](const Kernels& k, TensorView t) { k.scale_rows(t, factors); });
  compare([](const Kernels& k, TensorView t) { k.clamp(t, 0.625f); });
}

// tanh is good to 4 units in the last place; the quotient and the product round once each, and tanh makes no
// error of its argument larger.
TEST_P(ElementwiseTest, SoftCapMatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  for (const float cap : {30.0f, 0.7f}) {
    Rng rng(c.seed);
    const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill, c.padding);
    const TestTensor want(DType::kF64, c.tokens, c.cols);
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t i = 0; i < c.cols; ++i) want.view().set(t, i, x.at(t, i));
    ref_kernels().soft_cap(want, cap);
    kernels_of(backend).soft_cap(x, cap);
    expect_close(x, want, [&](int64_t, int64_t, double v) {
      return std::abs(v) * 11 * kF32Epsilon + store_error(backend, v);
    });
    x.expect_padding_untouched();
  }
}

// The sigmoid is of f32, its exp good to 1 unit; exp(-gate) overflows below -88.
TEST_P(ElementwiseTest, GateRowsMatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill, c.padding);
  const TestTensor gate(dtype_of(backend), c.tokens, 1, 2), want(DType::kF64, c.tokens, c.cols);
  for (int64_t t = 0; t < c.tokens; ++t) {
    gate.view().set(t, 0, t == 0 ? -100 : 20 * rng.uniform() - 10);
    for (int64_t i = 0; i < c.cols; ++i) want.view().set(t, i, x.at(t, i));
  }
  ref_kernels().gate_rows(want, gate);
  kernels_of(backend).gate_rows(x, gate);
  expect_close(x, want, [&](int64_t, int64_t, double v) {
    return std::abs(v) * 6 * kF32Epsilon + 1e15 * 0x1p-120 + store_error(backend, v);
  });
  x.expect_padding_untouched();
}

TEST_P(ElementwiseTest, AddIsRoundedOnce) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor a = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill, c.padding);
  const TestTensor b = random_tensor(rng, dtype_of(backend), c.tokens, c.cols, c.fill);
  const TestTensor want(dtype_of(backend), c.tokens, c.cols),
      got(dtype_of(backend), c.tokens, c.cols, c.padding);
  ref_kernels().add(want, a, b);
  kernels_of(backend).add(got, a, b);
  expect_bit_equal(got.view(), want.view());
  got.expect_padding_untouched();
  kernels_of(backend).add(a, a, b);
  expect_bit_equal(a.view(), want.view());
}

TEST_P(ElementwiseTest, GatherCopiesRows) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens + 1, c.cols, c.fill, c.padding);
  std::vector<int64_t> rows;
  for (int64_t r = 0; r < c.tokens; ++r)
    rows.push_back(static_cast<int64_t>(rng.below(static_cast<uint64_t>(c.tokens) + 1)));
  const Tensor ids = index_tensor(DType::kI32, rows);
  const TestTensor got(dtype_of(backend), c.tokens, c.cols, c.padding),
      want(dtype_of(backend), c.tokens, c.cols);
  kernels_of(backend).gather_rows(got, x, ids);
  for (int64_t r = 0; r < c.tokens; ++r)
    for (int64_t i = 0; i < c.cols; ++i) want.view().set(r, i, x.at(rows[static_cast<size_t>(r)], i));
  expect_bit_equal(got.view(), want.view());
  ref_kernels().gather_rows(got, x, ids);
  expect_bit_equal(got.view(), want.view());
}

INSTANTIATE_TEST_SUITE_P(Cases, ElementwiseTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), ::testing::ValuesIn(kCases)),
                         name_of);

class NonFiniteTest : public ::testing::TestWithParam<Backend> {
 protected:
  DType dtype() const { return dtype_of(GetParam()); }
};

TEST_P(NonFiniteTest, RowsOfNaNAndInfinityStayInTheirRows) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  for (const Activation activation : kActivations) {
    SCOPED_TRACE(static_cast<int>(activation));
    Rng rng(3);
    const TestTensor x = random_tensor(rng, dtype(), 4, 34);
    const TestTensor clean(dtype(), 4, 17), got(dtype(), 4, 17);
    kernels.glu(clean, x, activation);
    const double values[] = {std::nan(""), HUGE_VAL, -HUGE_VAL};
    for (int64_t t = 0; t < 3; ++t)
      for (int64_t i = 0; i < 34; ++i) x.view().set(t, i, i < 17 ? values[t] : 1);
    kernels.glu(got, x, activation);
    EXPECT_TRUE(std::isnan(got.at(0, 3)));
    EXPECT_TRUE(std::isnan(got.at(0, 16)));
    EXPECT_EQ(got.at(1, 3), HUGE_VAL);
    expect_bit_equal(got.view().slice_rows(3, 1), clean.view().slice_rows(3, 1));
  }
}

// NaN stays NaN; infinities are limited.
TEST_P(NonFiniteTest, LimitsOfNaNAndInfinity) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  for (const bool capped : {false, true}) {
    const TestTensor x(dtype(), 1, 19);
    const double values[] = {std::nan(""), HUGE_VAL, -HUGE_VAL, 0, -0.0};
    for (int64_t i = 0; i < 19; ++i) x.view().set(0, i, values[i % 5]);
    if (capped) {
      kernels.soft_cap(x, 3);
    } else {
      kernels.clamp(x, 3);
    }
    const double want[] = {0, 3, -3, 0, -0.0};
    for (int64_t i = 0; i < 19; ++i) {
      if (i % 5 == 0) {
        EXPECT_TRUE(std::isnan(x.at(0, i))) << i;
        continue;
      }
      EXPECT_EQ(x.at(0, i), want[i % 5]) << i;
      EXPECT_EQ(std::signbit(x.at(0, i)), std::signbit(want[i % 5])) << i;
    }
  }
}

// The reference against values of tables: erf(1) = 0.8427007929, tanh(1) = 0.7615941560, e = 2.7182818285.
TEST(RefActivations, KnownValues) {
  const auto activate = [](Activation activation, double value) {
    const TestTensor x(DType::kF64, 1, 1);
    x.view().set(0, 0, value);
    ref_kernels().activate(x, x, activation);
    return x.at(0, 0);
  };
  EXPECT_NEAR(activate(Activation::kSilu, 1), 1 / (1 + 1 / 2.7182818285), 1e-9);
  EXPECT_NEAR(activate(Activation::kGelu, std::sqrt(2.0)), (1 + 0.8427007929) / std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(activate(Activation::kGelu, -std::sqrt(2.0)), -(1 - 0.8427007929) / std::sqrt(2.0), 1e-9);
  EXPECT_NEAR(activate(Activation::kQuickGelu, 1 / 1.702), 1 / 1.702 / (1 + 1 / 2.7182818285), 1e-9);
  EXPECT_NEAR(activate(Activation::kGeluTanh, 1), 0.8411919906, 1e-9);
  EXPECT_EQ(activate(Activation::kRelu, -2), 0);
  EXPECT_EQ(activate(Activation::kRelu, 2), 2);
}

TEST(RefClampedGlu, ByHand) {
  const TestTensor x(DType::kF64, 2, 2), out(DType::kF64, 2, 1);
  x.view().set(0, 0, 9), x.view().set(0, 1, 8);    // both cut to 7
  x.view().set(1, 0, -9), x.view().set(1, 1, -8);  // the gate is not cut below
  ref_kernels().clamped_glu(out, x, 7);
  EXPECT_NEAR(out.at(0, 0), 8 * 7 / (1 + std::exp(-1.702 * 7)), 1e-12);
  EXPECT_NEAR(out.at(1, 0), -6 * -9 / (1 + std::exp(1.702 * 9)), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Isas, NonFiniteTest, ::testing::ValuesIn(all_backends()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace lmdeploy
