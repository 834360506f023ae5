// route, sort_by_expert, expert_linear and combine_experts against the reference, and the reference by hand.
#include <numeric>
#include <set>

#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct RouteCase {
  std::string name;
  int64_t tokens;
  int64_t experts;
  int64_t top_k;
  RouteOptions options = {};
  bool correction = false;
  Fill fill = Fill::kOrdinary;
  int64_t padding = 0;
  uint64_t seed = 1;
};

struct Routes {
  Tensor ids;  // [tokens, top_k]
  TestTensor weights;

  Routes(DType dtype, int64_t tokens, int64_t top_k, int64_t padding = 0)
      : ids(DType::kI32, {tokens, top_k}), weights(dtype, tokens, top_k, padding) {}
};

void expect_same_ids(const Tensor& got, const Tensor& want) {
  for (int64_t t = 0; t < want.dim(0); ++t)
    for (int64_t j = 0; j < want.dim(1); ++j)
      ASSERT_EQ(got.view().row<int32_t>(t)[j], want.view().row<int32_t>(t)[j])
          << "[" << t << ", " << j << "]";
}

class RouteTest : public ::testing::TestWithParam<std::tuple<Backend, RouteCase>> {};

// Both compute in f64, in one order (a device's exp is its own); the weights are rounded to f32.
TEST_P(RouteTest, MatchesReference) {
  const auto& [backend, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(c.seed);
  const TestTensor logits = random_tensor(rng, dtype_of(backend), c.tokens, c.experts, c.fill, c.padding);
  const TestTensor bias = random_tensor(rng, DType::kF32, 1, c.experts);
  std::optional<ConstTensorView> correction;
  if (c.correction) correction = ConstTensorView(bias.view().data(), DType::kF32, {c.experts});
  const Routes want(DType::kF64, c.tokens, c.top_k), got(dtype_of(backend), c.tokens, c.top_k, c.padding);
  ref_kernels().route(want.ids, want.weights, logits, correction, c.options);
  kernels_of(backend).route(got.ids, got.weights, logits, correction, c.options);
  expect_same_ids(got.ids, want.ids);
  expect_close(got.weights, want.weights, [&](int64_t, int64_t, double w) {
    return std::abs(w) * kF32Epsilon * (is_cuda(backend) ? 2 : 1) + store_error(backend, w);
  });
  got.weights.expect_padding_untouched();
}

const RouteCase kRouteCases[] = {
    {.name = "no_tokens", .tokens = 0, .experts = 8, .top_k = 2},
    {.name = "one_expert", .tokens = 3, .experts = 1, .top_k = 1, .options = {.renormalize = true}},
    {.name = "all_experts", .tokens = 5, .experts = 7, .top_k = 7},
    {.name = "mixtral",
     .tokens = 70,
     .experts = 8,
     .top_k = 2,
     .options = {.renormalize = true},
     .padding = 3},
    {.name = "qwen2_moe", .tokens = 9, .experts = 60, .top_k = 4},
    {.name = "equal", .tokens = 3, .experts = 60, .top_k = 4, .fill = Fill::kEqual},
    {.name = "tiny", .tokens = 3, .experts = 60, .top_k = 4, .fill = Fill::kTiny},
    {.name = "huge", .tokens = 3, .experts = 60, .top_k = 4, .fill = Fill::kHuge},
    {.name = "dbrx_p2",
     .tokens = 9,
     .experts = 16,
     .top_k = 4,
     .options = {.renormalize = true, .norm_p = 2}},
    {.name = "p3_eps",
     .tokens = 9,
     .experts = 16,
     .top_k = 4,
     .options = {.renormalize = true, .norm_p = 3, .norm_eps = 0.1f}},
    {.name = "gpt_oss", .tokens = 9, .experts = 32, .top_k = 4, .options = {.softmax_of_chosen = true}},
    {.name = "deepseek_v2",
     .tokens = 40,
     .experts = 160,
     .top_k = 6,
     .options = {.scale = 16, .num_groups = 8, .groups_kept = 3, .group_best = 1}},
    {.name = "deepseek_v3",
     .tokens = 40,
     .experts = 256,
     .top_k = 8,
     .options = {.sigmoid = true,
                 .renormalize = true,
                 .norm_eps = 1e-20f,
                 .scale = 2.5f,
                 .num_groups = 8,
                 .groups_kept = 4,
                 .group_best = 2},
     .correction = true},
    {.name = "groups_of_equals",
     .tokens = 2,
     .experts = 12,
     .top_k = 4,
     .options = {.num_groups = 4, .groups_kept = 2, .group_best = 3},
     .fill = Fill::kEqual},
    {.name = "all_of_one_group",
     .tokens = 5,
     .experts = 12,
     .top_k = 3,
     .options = {.num_groups = 4, .groups_kept = 1, .group_best = 2},
     .correction = true},
    {.name = "corrected_softmax",
     .tokens = 5,
     .experts = 12,
     .top_k = 3,
     .options = {.softmax_of_chosen = true},
     .correction = true},
};

INSTANTIATE_TEST_SUITE_P(Cases, RouteTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::ValuesIn(kRouteCases)),
                         [](const auto& test) {
                           const RouteCase& c = std::get<1>(test.param);
                           return cat(std::get<0>(test.param), "_", c.name, "_seed", c.seed);
                         });

/// nullopt: the reference.
class ExpertsTest : public ::testing::TestWithParam<std::optional<Backend>> {
 protected:
  void SetUp() override {
    if (GetParam()) LMD_REQUIRE_BACKEND(*GetParam());
  }
  const Kernels& kernels() const { return GetParam() ? kernels_of(*GetParam()) : ref_kernels(); }

  // One token.
  Routes route(const std::vector<double>& logits, int64_t top_k, const RouteOptions& options,
               const std::vector<float>& correction = {}) const {
    const auto experts = static_cast<int64_t>(logits.size());
    const TestTensor x(kernels().activation_dtype(), 1, experts);
    for (int64_t e = 0; e < experts; ++e) x.view().set(0, e, logits[static_cast<size_t>(e)]);
    Tensor bias(DType::kF32, {experts});
    std::copy(correction.begin(), correction.end(), bias.span<float>().begin());
    Routes out(kernels().activation_dtype(), 1, top_k);
    kernels().route(out.ids, out.weights, x,
                    correction.empty() ? std::nullopt : std::optional<ConstTensorView>(bias), options);
    return out;
  }
};

void expect_route(const Routes& got, const std::vector<int32_t>& ids, const std::vector<double>& weights) {
  for (size_t j = 0; j < ids.size(); ++j) {
    EXPECT_EQ(got.ids.span<int32_t>()[j], ids[j]) << "choice " << j;
    EXPECT_NEAR(got.weights.at(0, static_cast<int64_t>(j)), weights[j],
                std::abs(weights[j]) * (1e-7 + epsilon(got.weights.view().dtype())))
        << "choice " << j;
  }
}

TEST_P(ExpertsTest, RouteByHand) {
  const double e = std::exp(1.0);
  const std::vector<double> logits = {0, 2, 1, 2};
  const double sum = 1 + e * e + e + e * e;
  expect_route(route(logits, 3, {}), {1, 3, 2},
               {e * e / sum, e * e / sum, e / sum});  // equal: the lower first
  expect_route(route(logits, 3, {.renormalize = true, .scale = 10}), {1, 3, 2},
               {10 * e / (2 * e + 1), 10 * e / (2 * e + 1), 10 / (2 * e + 1)});
  expect_route(route(logits, 3, {.softmax_of_chosen = true}), {1, 3, 2},
               {e / (2 * e + 1), e / (2 * e + 1), 1 / (2 * e + 1)});
  const double norm = std::sqrt(2 * e * e + 1);
  expect_route(route(logits, 3, {.renormalize = true, .norm_p = 2}), {1, 3, 2},
               {e / norm, e / norm, 1 / norm});
}

TEST_P(ExpertsTest, CorrectionChoosesButDoesNotWeigh) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  expect_route(route({0, 1, 2}, 2, {.sigmoid = true}, {10, 0, 0}), {0, 2}, {sigmoid(0), sigmoid(2)});
  const double sum = sigmoid(0) + sigmoid(2);
  expect_route(route({0, 1, 2}, 2, {.sigmoid = true, .renormalize = true}, {10, 0, 0}), {0, 2},
               {sigmoid(0) / sum, sigmoid(2) / sum});
}

TEST_P(ExpertsTest, GroupsAreChosenFirst) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  // The best expert is alone in its group; the others' sums of two are larger.
  const std::vector<double> logits = {3, -9, 1, 1, 2, 0};
  RouteOptions options = {.sigmoid = true, .num_groups = 3, .groups_kept = 2, .group_best = 2};
  expect_route(route(logits, 3, options), {4, 2, 3}, {sigmoid(2), sigmoid(1), sigmoid(1)});
  options.group_best = 1;
  expect_route(route(logits, 3, options), {0, 4, 5}, {sigmoid(3), sigmoid(2), sigmoid(0)});
}

// Whatever a broken model says, the ids are different experts.
TEST_P(ExpertsTest, RoutesOfNaNAndInfinityAreExperts) {
  const double nan = std::nan(""), inf = HUGE_VAL;
  const std::vector<std::vector<double>> rows = {{nan, nan, nan, nan, nan, nan},
                                                 {nan, 1, nan, 2, nan, 3},
                                                 {-inf, -inf, -inf, -inf, -inf, -inf},
                                                 {inf, -inf, inf, -inf, nan, 0},
                                                 {-inf, 1, -inf, 2, -inf, -inf}};
  const RouteOptions kinds[] = {{},
                                {.sigmoid = true},
                                {.softmax_of_chosen = true},
                                {.renormalize = true},
                                {.num_groups = 3, .groups_kept = 2, .group_best = 2},
                                {.sigmoid = true, .num_groups = 3, .groups_kept = 2}};
  for (const std::vector<double>& row : rows) {
    for (const RouteOptions& options : kinds) {
      const Routes got = route(row, 4, options);
      const auto ids = got.ids.span<int32_t>();
      EXPECT_EQ(std::set<int32_t>(ids.begin(), ids.end()).size(), 4u);
      for (const int32_t id : ids) EXPECT_TRUE(id >= 0 && id < 6) << id;
    }
  }
  expect_route(route({-inf, 1, -inf, 2}, 3, {}), {3, 1, 0},
               {1 / (1 + std::exp(-1.0)), 1 / (1 + std::exp(1.0)), 0});
  expect_route(route({-inf, 1, -inf, 2}, 3, {.softmax_of_chosen = true}), {3, 1, 0},
               {1 / (1 + std::exp(-1.0)), 1 / (1 + std::exp(1.0)), 0});
}

struct Sorted {
  Tensor expert_start, row_tokens, pair_rows;

  Sorted(const Kernels& kernels, ConstTensorView ids, int64_t experts)
      : expert_start(DType::kI32, {experts + 1}),
        row_tokens(DType::kI32, {ids.dim(0) * ids.dim(1)}),
        pair_rows(DType::kI32, {ids.dim(0), ids.dim(1)}) {
    kernels.sort_by_expert(expert_start, row_tokens, pair_rows, ids);
  }
};

std::vector<int32_t> values(const Tensor& t) { return {t.span<int32_t>().begin(), t.span<int32_t>().end()}; }

TEST_P(ExpertsTest, SortByHand) {
  const Tensor ids(DType::kI32, {3, 2});
  const int32_t chosen[] = {3, 0, 0, 1, 3, 0};
  std::copy(std::begin(chosen), std::end(chosen), ids.span<int32_t>().begin());
  const Sorted sorted(kernels(), ids, 5);
  EXPECT_EQ(values(sorted.expert_start), (std::vector<int32_t>{0, 3, 4, 4, 6, 6}));
  EXPECT_EQ(values(sorted.row_tokens), (std::vector<int32_t>{0, 1, 2, 1, 0, 2}));
  EXPECT_EQ(values(sorted.pair_rows), (std::vector<int32_t>{4, 0, 1, 3, 5, 2}));
}

TEST_P(ExpertsTest, SortEqualsAStableSort) {
  Rng rng(5);
  for (const auto& [tokens, top_k, experts] :
       {std::tuple{0, 2, 4}, {1, 1, 1}, {9, 1, 1}, {4, 3, 3}, {100, 8, 256}, {301, 4, 60}}) {
    const Tensor ids(DType::kI32, {tokens, top_k});
    for (int32_t& id : ids.span<int32_t>())
      id = static_cast<int32_t>(rng.below(static_cast<uint64_t>(experts)));
    std::vector<int32_t> pairs(static_cast<size_t>(tokens * top_k));
    std::iota(pairs.begin(), pairs.end(), 0);
    const auto id_of = [&](int32_t pair) { return ids.span<int32_t>()[static_cast<size_t>(pair)]; };
    std::stable_sort(pairs.begin(), pairs.end(), [&](int32_t a, int32_t b) { return id_of(a) < id_of(b); });
    const Sorted sorted(kernels(), ids, experts);
    for (int32_t e = 0; e <= experts; ++e)
      EXPECT_EQ(sorted.expert_start.span<int32_t>()[static_cast<size_t>(e)],
                std::count_if(pairs.begin(), pairs.end(), [&](int32_t pair) { return id_of(pair) < e; }));
    for (size_t row = 0; row < pairs.size(); ++row) {
      EXPECT_EQ(sorted.row_tokens.span<int32_t>()[row], pairs[row] / top_k);
      EXPECT_EQ(sorted.pair_rows.span<int32_t>()[static_cast<size_t>(pairs[row])], static_cast<int32_t>(row));
    }
  }
}

TEST_P(ExpertsTest, CombineByHand) {
  const DType dtype = kernels().activation_dtype();
  const TestTensor x(dtype, 4, 2), weights(dtype, 2, 2), out(dtype, 2, 2);
  for (int64_t r = 0; r < 4; ++r)
    x.view().set(r, 0, std::pow(10, r)), x.view().set(r, 1, static_cast<double>(-r));
  weights.view().set(0, 0, 2), weights.view().set(0, 1, 3);
  weights.view().set(1, 0, 4), weights.view().set(1, 1, 5);
  const Tensor rows(DType::kI32, {2, 2});
  const int32_t pairs[] = {3, 0, 1, 2};
  std::copy(std::begin(pairs), std::end(pairs), rows.span<int32_t>().begin());
  kernels().combine_experts(out, x, weights, rows);
  const double want[2][2] = {{2003, -6}, {540, -14}};
  for (int64_t t = 0; t < 2; ++t)
    for (int64_t i = 0; i < 2; ++i)
      EXPECT_NEAR(out.at(t, i), want[t][i], std::abs(want[t][i]) * epsilon(dtype)) << t << ", " << i;
}

std::vector<std::optional<Backend>> reference_and_all() {
  std::vector<std::optional<Backend>> all = {std::nullopt};
  for (const Backend backend : all_backends()) all.emplace_back(backend);
  return all;
}
INSTANTIATE_TEST_SUITE_P(BackEnds, ExpertsTest, ::testing::ValuesIn(reference_and_all()),
                         [](const auto& test) {
                           return test.param ? std::string(to_string(*test.param)) : std::string("ref");
                         });

class CombineTest : public ::testing::TestWithParam<Backend> {};

// A sum of k products, each rounded at most twice.
TEST_P(CombineTest, MatchesReference) {
  LMD_REQUIRE_BACKEND(GetParam());
  Rng rng(3);
  for (const auto& [tokens, top_k, cols] :
       {std::tuple{0, 2, 8}, {1, 1, 1}, {3, 2, 15}, {2, 8, 16}, {5, 3, 17}, {40, 6, 2048}}) {
    const DType dtype = dtype_of(GetParam());
    const TestTensor x = random_tensor(rng, dtype, tokens * top_k, cols, Fill::kOrdinary, 3);
    const TestTensor weights = random_tensor(rng, dtype, tokens, top_k, Fill::kOrdinary, 1);
    const Tensor rows(DType::kI32, {tokens, top_k});
    std::iota(rows.span<int32_t>().rbegin(), rows.span<int32_t>().rend(), 0);
    const TestTensor want(DType::kF64, tokens, cols), got(dtype, tokens, cols, 5);
    ref_kernels().combine_experts(want, x, weights, rows);
    kernels_of(GetParam()).combine_experts(got, x, weights, rows);
    const double bound = 2 * static_cast<double>(top_k) * 9 * static_cast<double>(top_k) * kF32Epsilon;
    expect_close(got, want, [&](int64_t, int64_t, double v) { return bound + store_error(GetParam(), v); });
    got.expect_padding_untouched();
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, CombineTest, ::testing::ValuesIn(all_backends()),
                         [](const auto& test) { return to_string(test.param); });

// Experts of one shape and the rows that each gets.
struct ExpertsCase {
  std::string name;
  std::vector<int64_t> counts;
  int64_t rows;
  int64_t cols = 256;  // plain kinds: 29 fewer
  bool bias = false;
  int64_t padding = 0;
  uint64_t seed = 1;

  int64_t tokens() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  Tensor start() const {
    std::vector<int64_t> sums = {0};
    for (const int64_t count : counts) sums.push_back(sums.back() + count);
    return index_tensor(DType::kI32, sums);
  }
};

// `count` experts that take turns on the weights.
std::vector<const PackedWeight*> pointers(const std::vector<std::unique_ptr<PackedWeight>>& weights,
                                          size_t count) {
  std::vector<const PackedWeight*> out;
  for (size_t e = 0; e < count; ++e) out.push_back(weights[e % weights.size()].get());
  return out;
}

class ExpertLinearTest : public ::testing::TestWithParam<std::tuple<Backend, DType, ExpertsCase>> {
 protected:
  int64_t cols() const {
    const auto& [backend, dtype, c] = GetParam();
    return is_quantized(dtype) ? c.cols : c.cols - 29;
  }
  // Weights of the case; of many experts, some have the same.
  std::vector<Tensor> experts() const {
    const auto& [backend, dtype, c] = GetParam();
    Rng rng(c.seed);
    std::vector<Tensor> weights;
    for (size_t e = 0; e < std::min<size_t>(c.counts.size(), 11); ++e)
      weights.push_back(random_weight(rng, dtype, c.rows, cols()));
    return weights;
  }
};

std::vector<std::unique_ptr<PackedWeight>> pack_all(const Kernels& kernels,
                                                    const std::vector<Tensor>& weights) {
  std::vector<std::unique_ptr<PackedWeight>> packed;
  for (const Tensor& weight : weights) packed.push_back(pack(kernels, weight));
  return packed;
}

TEST_P(ExpertLinearTest, MatchesReference) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const std::vector<Tensor> weights = experts();
  std::vector<Tensor> sizes;
  for (const Tensor& weight : weights) sizes.push_back(magnitudes(weight));
  Rng rng(c.seed + 1);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens(), cols(), Fill::kOrdinary, c.padding);
  const TestTensor biases = random_tensor(rng, DType::kF32, static_cast<int64_t>(c.counts.size()), c.rows);
  const std::optional<ConstTensorView> bias = c.bias ? std::optional<ConstTensorView>(biases) : std::nullopt;
  const TestTensor want(DType::kF64, c.tokens(), c.rows), total(DType::kF64, c.tokens(), c.rows);
  const TestTensor got(dtype_of(backend), c.tokens(), c.rows, c.padding);
  const auto run = [&](const Kernels& kernels, TensorView out, ConstTensorView input,
                       const std::vector<Tensor>& of, const std::optional<ConstTensorView>& with) {
    const auto packed = pack_all(kernels, of);
    kernels.expert_linear(out, input, pointers(packed, c.counts.size()), c.start(), with);
  };
  run(ref_kernels(), want, x, weights, bias);
  run(ref_kernels(), total, absolute(x), sizes, std::nullopt);
  run(kernels_of(backend), got, x, weights, bias);
  // CUDA keeps float kinds in the activation dtype.
  const double weight_step = is_quantized(dtype) || backend == Backend::kCudaF32 || !is_cuda(backend)
                                 ? 0
                                 : epsilon(dtype_of(backend));
  const double subnormal = backend == Backend::kCudaF16 ? 3 * 0x1p-25 * static_cast<double>(cols()) : 0;
  expect_close(got, want, [&](int64_t t, int64_t n, double v) {
    return linear_bound(cols(), total.at(t, n), v) + total.at(t, n) * weight_step + subnormal +
           store_error(backend, v);
  });
  got.expect_padding_untouched();
}

// The seam's promise: a row's bits are those of linear() with its expert, beside whatever other rows. CUDA
// reads kinds that it has no format for in two ways, by the number of rows: up to 16 for an expert.
TEST_P(ExpertLinearTest, EqualsLinearRowByRow) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  // Without products of 16 bits that is what 8-bit floats do: in f32, and on cards before sm_80.
  const bool by_row = dtype == DType::kQ6_K || dtype == DType::kF8G64;
  if (is_cuda(backend) && by_row && c.tokens() > 16 * static_cast<int64_t>(c.counts.size())) return;
  // Integers in groups have an order of sums for up to 8 tokens each, and one for more (docs/design.md).
  if (is_cuda(backend) && is_integer_group(dtype) && c.tokens() > 8 * static_cast<int64_t>(c.counts.size()))
    return;
  Rng rng(c.seed + 1);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens(), cols(), Fill::kOrdinary, c.padding);
  const TestTensor biases = random_tensor(rng, DType::kF32, static_cast<int64_t>(c.counts.size()), c.rows);
  const std::optional<ConstTensorView> bias = c.bias ? std::optional<ConstTensorView>(biases) : std::nullopt;
  const auto packed = pack_all(kernels_of(backend), experts());
  const TestTensor want(dtype_of(backend), c.tokens(), c.rows);
  int64_t row = 0;
  for (size_t e = 0; e < c.counts.size(); ++e) {
    std::optional<ConstTensorView> row_bias;
    if (bias) row_bias = ConstTensorView(bias->row_data(static_cast<int64_t>(e)), DType::kF32, {c.rows});
    for (int64_t i = 0; i < c.counts[e]; ++i, ++row)
      kernels_of(backend).linear(want.view().slice_rows(row, 1), x.view().slice_rows(row, 1),
                                 *packed[e % packed.size()], row_bias);
  }
  const auto expect_equal = [&](const Kernels& kernels) {
    const TestTensor got(dtype_of(backend), c.tokens(), c.rows);
    kernels.expert_linear(got, x, pointers(packed, c.counts.size()), c.start(), bias);
    expect_bit_equal(got.view(), want.view());
  };
  if (is_cuda(backend)) return expect_equal(kernels_of(backend));
  for (const int num_threads : {1, 3, 16})
    expect_equal(*make_cpu_kernels(std::make_shared<ThreadPool>(num_threads), options_of(backend)));
}

const ExpertsCase kExpertsCases[] = {
    {.name = "no_rows", .counts = {0, 0}, .rows = 16},
    {.name = "one_expert", .counts = {3}, .rows = 17, .bias = true},
    {.name = "decode", .counts = {0, 1, 0, 1, 2, 0, 0, 1}, .rows = 70},
    {.name = "uneven", .counts = {1, 0, 150, 2, 13}, .rows = 33, .bias = true, .padding = 3},
    {.name = "wide", .counts = {7, 12, 1}, .rows = 48, .cols = 768},
};
INSTANTIATE_TEST_SUITE_P(Cases, ExpertLinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::Values(DType::kF32, DType::kBF16, DType::kQ4_1,
                                                              DType::kQ8_0, DType::kQ6_K, DType::kF8G64,
                                                              DType::kU4G128, DType::kU5G32),
                                            ::testing::ValuesIn(kExpertsCases)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param), "_",
                                      std::get<2>(test.param).name);
                         });
std::vector<ExpertsCase> many_experts() {
  ExpertsCase c = {
      .name = "256_experts", .counts = std::vector<int64_t>(256), .rows = 20, .cols = 64, .bias = true};
  for (size_t e = 0; e < c.counts.size(); e += 5) c.counts[e] = static_cast<int64_t>(1 + e % 3);
  return {c};
}
INSTANTIATE_TEST_SUITE_P(Many, ExpertLinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::Values(DType::kF16, DType::kQ4_1),
                                            ::testing::ValuesIn(many_experts())),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param), "_",
                                      std::get<2>(test.param).name);
                         });

class OrderedExpertsTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// Every second expert has its columns in an order of its own.
TEST_P(OrderedExpertsTest, EqualOrderedRows) {
  const auto& [backend, kind] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  const DType dtype = dtype_of(backend);
  constexpr int64_t kRows = 40, kCols = 256;
  const std::vector<int64_t> start = {0, 2, 2, 11, 15, 16};
  Rng rng(9);
  const TestTensor x = random_tensor(rng, dtype, start.back(), kCols, Fill::kOrdinary, 8);
  const TestTensor moved(dtype, start.back(), kCols, 8);
  std::vector<std::unique_ptr<PackedWeight>> ordered, plain;
  for (size_t e = 0; e + 1 < start.size(); ++e) {
    const Tensor weight = random_weight(rng, kind, kRows, kCols);
    const std::vector<int32_t> order = e % 2 == 0 ? random_order(rng, kCols) : std::vector<int32_t>();
    ordered.push_back(pack(kernels, weight, order));
    plain.push_back(pack(kernels, weight));
    const int64_t count = start[e + 1] - start[e];
    order_columns(moved.view().slice_rows(start[e], count), x.view().slice_rows(start[e], count), order);
  }
  const TestTensor got(dtype, start.back(), kRows), want(dtype, start.back(), kRows);
  const Tensor starts = index_tensor(DType::kI32, start);
  kernels.expert_linear(got, x, pointers(ordered, ordered.size()), starts);
  kernels.expert_linear(want, moved, pointers(plain, plain.size()), starts);
  expect_bit_equal(got.view(), want.view());
}

INSTANTIATE_TEST_SUITE_P(Kinds, OrderedExpertsTest,
                         ::testing::Combine(::testing::ValuesIn(linear_backends()),
                                            ::testing::Values(DType::kU4G128, DType::kF8G64)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

class MixedExpertsTest : public ::testing::TestWithParam<Backend> {};

// Gate and up stacked, each expert of kinds of its own.
TEST_P(MixedExpertsTest, EqualLinear) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  Rng rng(8);
  std::vector<std::unique_ptr<PackedWeight>> experts;
  for (const auto& [gate, up] :
       {std::pair{DType::kQ4_1, DType::kQ4_1}, {DType::kF32, DType::kQ8_0}, {DType::kQ6_K, DType::kBF16}}) {
    const Tensor weights[] = {random_weight(rng, gate, 19, 256), random_weight(rng, up, 30, 256)};
    const ConstTensorView parts[] = {weights[0], weights[1]};
    experts.push_back(kernels.pack_weight(parts));
  }
  const std::vector<int64_t> counts = {2, 9, 4};
  const DType dtype = dtype_of(GetParam());
  const TestTensor x = random_tensor(rng, dtype, 15, 256), got(dtype, 15, 49), want(dtype, 15, 49);
  kernels.expert_linear(got, x, pointers(experts, 3), index_tensor(DType::kI32, {0, 2, 11, 15}));
  int64_t row = 0;
  for (size_t e = 0; e < 3; row += counts[e++])
    kernels.linear(want.view().slice_rows(row, counts[e]), x.view().slice_rows(row, counts[e]), *experts[e]);
  expect_bit_equal(got.view(), want.view());
}

INSTANTIATE_TEST_SUITE_P(Isas, MixedExpertsTest, ::testing::ValuesIn(all_backends()),
                         [](const auto& test) { return to_string(test.param); });

}  // namespace
}  // namespace lmdeploy
