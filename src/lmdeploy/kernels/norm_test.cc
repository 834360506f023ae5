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
  bool bias = false;
  bool weight_per_run = true;  // one weight for each group; else [hidden]
  uint64_t seed = 1;

  int64_t size() const { return options.group > 0 ? options.group : hidden; }
};

// The tensors of one case.
struct NormProblem {
  NormCase c;
  Backend backend;
  TestTensor x, weight, bias;

  NormProblem(const NormCase& with, Backend of) : NormProblem(with, of, Rng(with.seed)) {}

  ConstTensorView weights() const { return vector_of(weight); }
  NormOptions options() const {
    NormOptions o = c.options;
    if (c.bias) o.bias = vector_of(bias);
    return o;
  }

  // Fails where got, the norm of input, is off by more than f32 costs: sums of n terms (sqrt(n) rule: Higham
  // 2002, ch. 4), and the roundings of rsqrt, the products, the bias and the result. LayerNorm's mean has
  // such an error too, relative to the largest element, which the scale and the weight make larger.
  void expect_norm(ConstTensorView got, ConstTensorView want, ConstTensorView input) const {
    const double units = (std::sqrt(static_cast<double>(c.size())) + 8) * kF32Epsilon;
    std::vector<double> mean_errors;  // of each run's results
    for (int64_t t = 0; t < input.rows(); ++t)
      for (int64_t begin = 0; begin < c.hidden; begin += c.size())
        mean_errors.push_back(c.options.kind == NormKind::kLayer ? units * mean_effect(input, t, begin) : 0);
    expect_close(got, want, [&](int64_t t, int64_t i, double v) {
      return (std::abs(v) + (c.bias ? 3 : 0)) * units +
             mean_errors[static_cast<size_t>((t * c.hidden + i) / c.size())] + store_error(backend, v);
    });
  }

 private:
  NormProblem(const NormCase& with, Backend of, Rng rng)
      : c(with),
        backend(of),
        x(random_tensor(rng, dtype_of(of), c.tokens, c.hidden, c.fill, c.padding)),
        weight(random_tensor(rng, DType::kF32, 1, c.weight_per_run ? c.size() : c.hidden)),
        bias(random_tensor(rng, DType::kF32, 1, c.weight_per_run ? c.size() : c.hidden)) {}
  // What a mean off by the largest element would change in a run's results.
  double mean_effect(ConstTensorView input, int64_t t, int64_t begin) const {
    double mean = 0, variance = 0, largest = 0;
    const auto n = static_cast<double>(c.size());
    for (int64_t i = begin; i < begin + c.size(); ++i) mean += input.at(t, i) / n;
    for (int64_t i = begin; i < begin + c.size(); ++i) {
      variance += std::pow(input.at(t, i) - mean, 2) / n;
      largest = std::max(largest, std::abs(input.at(t, i)));
    }
    return largest * (3 + std::abs(c.options.offset)) / std::sqrt(variance + c.options.eps);
  }
  static ConstTensorView vector_of(const TestTensor& t) {
    return {t.view().data(), DType::kF32, {t.view().cols()}};
  }
};

class NormTest : public ::testing::TestWithParam<std::tuple<Backend, NormCase>> {};

TEST_P(NormTest, MatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const NormProblem p(c, backend);
  const TestTensor want(DType::kF64, c.tokens, c.hidden),
      got(dtype_of(backend), c.tokens, c.hidden, c.padding);
  ref_kernels().norm(want, p.x, p.weights(), p.options());
  kernels_of(backend).norm(got, p.x, p.weights(), p.options());
  p.expect_norm(got, want, p.x);
  got.expect_padding_untouched();
}

TEST_P(NormTest, WorksInPlace) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const NormProblem p(c, backend);
  const TestTensor apart(dtype_of(backend), c.tokens, c.hidden);
  kernels_of(backend).norm(apart, p.x, p.weights(), p.options());
  kernels_of(backend).norm(p.x, p.x, p.weights(), p.options());
  expect_bit_equal(p.x.view(), apart.view());
}

TEST_P(NormTest, AddsTheResidualFirst) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  if (c.options.group > 0) return;  // add_norm is of whole rows
  const NormProblem p(c, backend);
  Rng rng(c.seed + 1);
  const TestTensor residual = random_tensor(rng, dtype_of(backend), c.tokens, c.hidden, c.fill, c.padding);
  const TestTensor sum(dtype_of(backend), c.tokens, c.hidden), want(DType::kF64, c.tokens, c.hidden);
  ref_kernels().add(sum, residual, p.x);  // one rounding, as the op's residual has
  ref_kernels().norm(want, sum, p.weights(), p.options());
  const TestTensor got(dtype_of(backend), c.tokens, c.hidden, c.padding);
  kernels_of(backend).add_norm(got, residual, p.x, p.weights(), p.options());
  expect_bit_equal(residual.view(), sum.view());
  p.expect_norm(got, want, sum);
}

constexpr NormOptions kLayer = {.eps = 1e-5f, .kind = NormKind::kLayer};
constexpr NormOptions groups_of(int64_t group, NormKind kind = NormKind::kRms) {
  return {.kind = kind, .group = group};
}

const NormCase kCases[] = {
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
    {3, 33, Fill::kOrdinary, 0, {}, /*bias=*/true},
    {1, 1, Fill::kOrdinary, 0, kLayer, /*bias=*/true},
    {2, 15, Fill::kOrdinary, 0, kLayer},
    {2, 16, Fill::kEqual, 0, kLayer, /*bias=*/true},
    {3, 17, Fill::kOrdinary, 5, kLayer, /*bias=*/true},
    {2, 101, Fill::kTiny, 0, kLayer},
    {2, 101, Fill::kHuge, 0, kLayer},
    {3, 4544, Fill::kOrdinary, 0, kLayer, /*bias=*/true},  // Falcon-7B
    {3, 40, Fill::kOrdinary, 0, groups_of(1)},
    {3, 42, Fill::kOrdinary, 3, groups_of(7)},
    {3, 60, Fill::kOrdinary, 0, groups_of(20), /*bias=*/true},
    {3, 60, Fill::kOrdinary, 0, groups_of(20), /*bias=*/true, /*weight_per_run=*/false},
    {3, 60, Fill::kOrdinary, 0, groups_of(20, NormKind::kLayer), false, /*weight_per_run=*/false},
    {5, 2048, Fill::kOrdinary, 64, groups_of(128)},  // Qwen3's query heads
};

INSTANTIATE_TEST_SUITE_P(Cases, NormTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           const NormCase& c = std::get<1>(test.param);
                           return cat(std::get<0>(test.param),
                                      c.options.kind == NormKind::kRms ? "_rms_" : "_layer_", c.tokens, "x",
                                      c.hidden, "_group", c.options.group, c.bias ? "_bias" : "",
                                      c.weight_per_run ? "_" : "_all_weights_", c.fill, "_pad", c.padding,
                                      "_seed", c.seed);
                         });

// The reference against numbers worked out by hand: mean and variance of {1, 3} and {5, 9}.
TEST(RefNorm, EachFormByHand) {
  const TestTensor x(DType::kF64, 1, 4), out(DType::kF64, 1, 4);
  const double values[] = {1, 3, 5, 9};
  for (int64_t i = 0; i < 4; ++i) x.view().set(0, i, values[i]);
  Tensor two(DType::kF32, {2}), four(DType::kF32, {4}), bias(DType::kF32, {4});
  two.span<float>()[0] = 1, two.span<float>()[1] = 2;
  for (size_t i = 0; i < 4; ++i) four.span<float>()[i] = static_cast<float>(i), bias.span<float>()[i] = 10;
  const auto expect = [&](const std::array<double, 4>& want) {
    for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(out.at(0, i), want[static_cast<size_t>(i)], 1e-12) << i;
  };
  ref_kernels().norm(out, x, four, {.eps = 0, .bias = bias});
  const double rms = std::sqrt((1 + 9 + 25 + 81) / 4.0);
  expect({10, 10 + 3 / rms, 10 + 10 / rms, 10 + 27 / rms});
  ref_kernels().norm(out, x, two, {.eps = 0, .offset = 1, .kind = NormKind::kLayer, .group = 2});
  expect({-2, 3, -2, 3});
  ref_kernels().norm(out, x, four, {.eps = 3, .kind = NormKind::kLayer, .group = 2, .bias = bias});
  expect({10, 10 + 0.5, 10 - 4 / std::sqrt(7), 10 + 6 / std::sqrt(7)});
}

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
