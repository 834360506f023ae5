// rope_table and rope against the reference.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct RopeCase {
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;
  int64_t rotary_dim;
  bool interleaved = false;
  int64_t padding = 0;
  int64_t first = 0;
  uint64_t seed = 1;
};

class RopeTest : public ::testing::TestWithParam<std::tuple<Backend, RopeCase>> {};

// Angles and sines are f64 on both sides: only the result is rounded to f32. 2^-52 is for a libm that rounds
// differently.
TEST_P(RopeTest, TableMatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const int64_t half = c.rotary_dim / 2;
  std::vector<int64_t> positions, tables;
  for (int64_t t = 0; t < c.tokens; ++t) {
    positions.push_back(t == 0 ? 0 : static_cast<int64_t>(rng.below(131072)));
    tables.push_back(static_cast<int64_t>(rng.below(2)));
  }
  Tensor inv_freq(DType::kF64, {2, half}), scale(DType::kF64, {2});
  for (double& f : inv_freq.span<double>()) f = std::pow(10000.0, -rng.uniform());
  scale.span<double>()[0] = 1;
  scale.span<double>()[1] = 1.25;
  const Tensor position = index_tensor(DType::kI32, positions), table_idx = index_tensor(DType::kI32, tables);
  const TestTensor want(DType::kF64, c.tokens, 2 * half), got(DType::kF32, c.tokens, 2 * half, c.padding);
  ref_kernels().rope_table(want, position, inv_freq, scale, table_idx);
  kernels_of(backend).rope_table(got, position, inv_freq, scale, table_idx);
  expect_close(got, want, [](int64_t, int64_t, double v) { return std::abs(v) * kF32Epsilon + 0x1p-52; });
  got.expect_padding_untouched();
}

// Two products and their sum: at most three roundings of numbers no larger than |a cos| + |b sin|.
TEST_P(RopeTest, RotationMatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const int64_t cols = c.heads * c.head_dim;
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, cols, Fill::kOrdinary, c.padding);
  const TestTensor table =
      random_tensor(rng, DType::kF32, c.tokens, c.rotary_dim, Fill::kOrdinary, c.padding);
  const TestTensor want(DType::kF64, c.tokens, cols);
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t i = 0; i < cols; ++i) want.view().set(t, i, x.at(t, i));
  const RopeOptions options = {.head_dim = c.head_dim, .interleaved = c.interleaved, .first = c.first};
  ref_kernels().rope(want, table, options);
  kernels_of(backend).rope(x, table, options);
  constexpr double kLargest = 3 * 3 + 3 * 3;  // of |a cos| + |b sin|: random_tensor's range
  expect_close(x, want, [&](int64_t, int64_t, double v) {
    return 3 * kLargest * kF32Epsilon + store_error(backend, v);
  });
  x.expect_padding_untouched();
}

TEST_P(RopeTest, ElementsBesideTheRotatedOnesPassThrough) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, c.heads * c.head_dim);
  Rng again(c.seed);
  const TestTensor before = random_tensor(again, dtype_of(backend), c.tokens, c.heads * c.head_dim);
  const TestTensor table = random_tensor(rng, dtype_of(backend), c.tokens, c.rotary_dim);
  kernels_of(backend).rope(x, table,
                           {.head_dim = c.head_dim, .interleaved = c.interleaved, .first = c.first});
  for (int64_t t = 0; t < c.tokens; ++t) {
    for (int64_t i = 0; i < x.view().cols(); ++i) {
      const int64_t d = i % c.head_dim - c.first;
      if (d >= 0 && d < c.rotary_dim) continue;
      ASSERT_EQ(x.at(t, i), before.at(t, i)) << t << ", " << i;
    }
  }
}

constexpr RopeCase kCases[] = {
    {0, 1, 8, 8},
    {1, 1, 2, 2},
    {1, 3, 6, 6, true},
    {2, 2, 14, 14},
    {2, 2, 16, 16, true},
    {3, 1, 18, 18, false, 3},
    {5, 2, 34, 34},
    {3, 3, 80, 32},  // partial
    {3, 3, 80, 32, true},
    {2, 1, 13, 4},              // an odd head
    {33, 9, 64, 64, false, 8},  // SmolLM2-135M
    {4, 4, 128, 128, true},
    {3, 2, 80, 32, false, 3, 48},  // the last ones
    {3, 2, 13, 4, true, 0, 5},
    {2, 16, 192, 64, true, 0, 128},  // DeepSeek-V2's queries
};

INSTANTIATE_TEST_SUITE_P(Cases, RopeTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()), ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           const RopeCase& c = std::get<1>(test.param);
                           return cat(std::get<0>(test.param), "_", c.tokens, "x", c.heads, "x", c.head_dim,
                                      "_rotary", c.rotary_dim, c.interleaved ? "_pairs" : "_halves", "_pad",
                                      c.padding, "_first", c.first, "_seed", c.seed);
                         });

// A rotation by known angles, so that the reference itself is judged: pairs, direction and layout.
TEST(RefRope, RotatesByTheAngle) {
  Tensor inv_freq(DType::kF64, {1, 2}), scale(DType::kF64, {1});
  inv_freq.span<double>()[0] = std::acos(-1.0) / 2;  // a quarter turn
  inv_freq.span<double>()[1] = 0;
  scale.span<double>()[0] = 2;
  const Tensor position = index_tensor(DType::kI32, {1}), idx = index_tensor(DType::kI32, {0});
  const TestTensor table(DType::kF64, 1, 4);
  ref_kernels().rope_table(table, position, inv_freq, scale, idx);
  for (const bool interleaved : {false, true}) {
    const TestTensor x(DType::kF64, 1, 5);
    for (int i = 0; i < 5; ++i) x.view().set(0, i, i + 1);
    ref_kernels().rope(x, table, {.head_dim = 5, .interleaved = interleaved});
    const double halves[] = {-6, 4, 2, 8, 5}, pairs[] = {-4, 2, 6, 8, 5};
    for (int i = 0; i < 5; ++i) EXPECT_NEAR(x.at(0, i), interleaved ? pairs[i] : halves[i], 1e-12) << i;
    for (int i = 0; i < 5; ++i) x.view().set(0, i, i);  // 1..4, one later
    ref_kernels().rope(x, table, {.head_dim = 5, .interleaved = interleaved, .first = 1});
    EXPECT_EQ(x.at(0, 0), 0);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(x.at(0, i + 1), interleaved ? pairs[i] : halves[i], 1e-12) << i;
  }
}

}  // namespace
}  // namespace lmdeploy
