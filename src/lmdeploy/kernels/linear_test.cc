// linear and embedding against the reference, for every weight kind.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

struct LinearCase {
  int64_t tokens;
  int64_t rows;
  int64_t
      blocks;  // columns: blocks * 32 for quantised kinds of 32, * 256 for those of 256, * 29 for plain ones
  bool bias = false;
  Fill fill = Fill::kOrdinary;
  int64_t padding = 0;
  uint64_t seed = 1;
};

int64_t cols_of(const LinearCase& c, DType dtype) {
  return c.blocks * (block_size(dtype) == 1 ? 29 : block_size(dtype));
}

std::string name_of(Backend backend, DType dtype, const LinearCase& c) {
  return cat(backend, "_", dtype, "_", c.tokens, "x", c.rows, "x", cols_of(c, dtype), c.bias ? "_bias_" : "_",
             c.fill, "_pad", c.padding, "_seed", c.seed);
}

std::optional<ConstTensorView> vector_view(const TestTensor& t, bool wanted) {
  if (!wanted) return std::nullopt;
  return ConstTensorView(t.view().data(), DType::kF32, {t.view().cols()});
}

// What a back end's own form of weights and bias adds to a sum whose terms are `total` in size: CUDA keeps
// float kinds in the activation dtype, and reads quantised ones through it for large batches.
double weight_error(Backend backend, double total, double largest_x, int64_t cols) {
  const DType dtype = dtype_of(backend);
  if (dtype == DType::kF32) return 0;
  const double subnormal = dtype == DType::kF16 ? 0x1p-25 * largest_x * static_cast<double>(cols) : 0;
  return (total + 3) * epsilon(dtype) + subnormal;
}

double largest(ConstTensorView x) {
  double size = 0;
  for (int64_t t = 0; t < x.rows(); ++t)
    for (int64_t k = 0; k < x.cols(); ++k) size = std::max(size, std::abs(x.at(t, k)));
  return size;
}

class LinearTest : public ::testing::TestWithParam<std::tuple<Backend, DType, LinearCase>> {};

// In the activation dtype, and in the wide one that logits have.
TEST_P(LinearTest, MatchesReference) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  const int64_t cols = cols_of(c, dtype);
  Rng rng(c.seed);
  const Tensor weight = random_weight(rng, dtype, c.rows, cols);
  const TestTensor x = random_tensor(rng, dtype_of(backend), c.tokens, cols, c.fill, c.padding);
  const TestTensor bias = random_tensor(rng, DType::kF32, 1, c.rows);
  const TestTensor want(DType::kF64, c.tokens, c.rows), total(DType::kF64, c.tokens, c.rows);
  ref_kernels().linear(want, x, *pack(ref_kernels(), weight), vector_view(bias, c.bias));
  ref_kernels().linear(total, absolute(x), *pack(ref_kernels(), magnitudes(weight)));
  const double largest_x = largest(x);
  for (const DType out_dtype : {dtype_of(backend), DType::kF32}) {
    const TestTensor got(out_dtype, c.tokens, c.rows, c.padding);
    kernels.linear(got, x, *pack(kernels, weight), vector_view(bias, c.bias));
    expect_close(got, want, [&](int64_t t, int64_t n, double v) {
      return linear_bound(cols, total.at(t, n), v) + weight_error(backend, total.at(t, n), largest_x, cols) +
             (out_dtype == DType::kF32 ? 0 : store_error(backend, v));
    });
    got.expect_padding_untouched();
    if (dtype_of(backend) == DType::kF32) break;
  }
}

constexpr LinearCase kCases[] = {
    {0, 16, 1},
    {1, 1, 1},
    {1, 15, 1, true},
    {1, 16, 2},
    {1, 17, 3, true},
    {1, 64, 9},
    {1, 67, 2},
    {2, 37, 3, false, Fill::kOrdinary, 5},
    {2, 32, 1, false, Fill::kEqual},
    {3, 31, 2},
    {4, 33, 1, true, Fill::kTiny},
    {5, 16, 9},
    {6, 40, 2},
    {7, 19, 2, true, Fill::kHuge, 3},
    {12, 16, 1},
    {13, 48, 2},
    {31, 150, 1},
    {131, 20, 1, true},
};

INSTANTIATE_TEST_SUITE_P(Cases, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::ValuesIn(kWeightKinds), ::testing::ValuesIn(kCases)),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });

// What cuBLASLt takes: rows of whole 16 bytes; of quantised kinds, more than 64 tokens.
constexpr LinearCase kAlignedCases[] = {{1, 64, 8},
                                        {3, 48, 8, true},
                                        {65, 128, 16, true},
                                        {200, 256, 8, false, Fill::kTiny},
                                        {129, 72, 16, true, Fill::kHuge}};
INSTANTIATE_TEST_SUITE_P(Aligned, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::ValuesIn(kWeightKinds),
                                            ::testing::ValuesIn(kAlignedCases)),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });

// What a GPU has a kernel of its own for: up to 64 tokens, rows of whole 16 bytes. Tokens at the borders of
// groups of 8; rows of one tile (128 or 256) and less, and so many that blocks of threads have several tiles;
// columns that several blocks share, and that end inside a group of 64.
constexpr LinearCase kFewTokenCases[] = {
    {8, 127, 8, true},   {9, 129, 72},        {16, 128, 72, true, Fill::kOrdinary, 8},
    {17, 257, 72},       {32, 300, 16, true}, {33, 256, 72},
    {64, 513, 72, true}, {64, 40, 8},         {3, 5000, 72, true},
    {17, 9000, 24},      {5, 40, 40}};
INSTANTIATE_TEST_SUITE_P(FewTokens, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::Values(DType::kBF16),
                                            ::testing::ValuesIn(kFewTokenCases)),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });

// SmolLM2-135M's down projection, and a K kind's least width.
constexpr LinearCase kModelCases[] = {{9, 576, 6}};
INSTANTIATE_TEST_SUITE_P(
    Model, LinearTest,
    ::testing::Combine(::testing::ValuesIn(all_backends()),
                       ::testing::Values(DType::kQ4_1, DType::kQ4_K, DType::kQ6_K, DType::kBF16),
                       ::testing::ValuesIn(kModelCases)),
    [](const auto& test) { return std::apply([](const auto&... p) { return name_of(p...); }, test.param); });

// The same of integers: up to 8, 16, 32 and 64 tokens; rows that end inside a tile of 16, and columns inside
// one of 64 or 128.
constexpr LinearCase kFewIntegerCases[] = {
    {1, 128, 9, true}, {8, 47, 33},        {9, 100, 8},         {16, 31, 40, true, Fill::kOrdinary, 8},
    {17, 257, 9},      {32, 40, 33, true}, {33, 129, 17, true}, {64, 640, 5},
    {50, 16, 1}};
INSTANTIATE_TEST_SUITE_P(
    FewIntegers, LinearTest,
    ::testing::Combine(::testing::ValuesIn(all_backends()),
                       ::testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kU4G32,
                                         DType::kU4G128, DType::kU5G32, DType::kI8G64, DType::kF8G64),
                       ::testing::ValuesIn(kFewIntegerCases)),
    [](const auto& test) { return std::apply([](const auto&... p) { return name_of(p...); }, test.param); });

// Hopper's kernel for more: whole and partial groups of 128 tokens and of 128 rows, columns that several
// blocks share and that end inside a unit of 128 or 64; up to 64 tokens it takes large weights only.
constexpr LinearCase kManyIntegerCases[] = {
    {65, 300, 33, true}, {128, 640, 40}, {129, 128, 17, true, Fill::kOrdinary, 8}, {256, 75, 8}};
constexpr LinearCase kLargeIntegerCases[] = {{64, 2600, 303, true}, {40, 3000, 264}};
constexpr std::array kGroupKinds = {DType::kQ4_0,   DType::kQ8_0,  DType::kU4G32,
                                    DType::kU4G128, DType::kI8G64, DType::kF8G64};
INSTANTIATE_TEST_SUITE_P(ManyIntegers, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(all_backends()),
                                            ::testing::ValuesIn(kGroupKinds),
                                            ::testing::ValuesIn(kManyIntegerCases)),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });
INSTANTIATE_TEST_SUITE_P(LargeIntegers, LinearTest,
                         ::testing::Combine(::testing::Values(Backend::kCudaBF16, Backend::kCudaF16),
                                            ::testing::Values(DType::kU4G128, DType::kI8G64),
                                            ::testing::ValuesIn(kLargeIntegerCases)),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });

// More rows than CUDA widens at once for its library.
INSTANTIATE_TEST_SUITE_P(Slices, LinearTest,
                         ::testing::Combine(::testing::Values(Backend::kCudaBF16),
                                            ::testing::Values(DType::kQ6_K),
                                            ::testing::Values(LinearCase{5, 34000, 8, true})),
                         [](const auto& test) {
                           return std::apply([](const auto&... p) { return name_of(p...); }, test.param);
                         });

class LinearKindTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

/// In how many tokens' company a token's bits stay the same. CUDA: up to where a library has a hand in it, or
/// another kernel of its own.
int64_t most_of_same_bits(Backend backend, DType dtype) {
  constexpr std::array kReadByRow = {DType::kQ5_0, DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
  if (!is_cuda(backend) || !is_quantized(dtype)) return 70;
  return std::ranges::find(kReadByRow, dtype) != kReadByRow.end() ? 4 : 8;
}

// The seam's promise: a row's result is bit-equal in any batch.
TEST_P(LinearKindTest, BatchEqualsSingleTokensAndSmallBatches) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  const int64_t cols = is_quantized(dtype) ? 512 : 601;
  const int64_t all = most_of_same_bits(backend, dtype);
  constexpr int64_t kRows = 75;
  Rng rng(11);
  const auto weight = pack(kernels, random_weight(rng, dtype, kRows, cols));
  const TestTensor x = random_tensor(rng, dtype_of(backend), all, cols);
  const TestTensor batch(dtype_of(backend), all, kRows), split(dtype_of(backend), all, kRows);
  kernels.linear(batch, x, *weight);
  for (const int64_t size : {1, 2, 3, 4, 5, 6, 7, 11, 13, 32, 69}) {
    for (int64_t t = 0; t < all; t += size) {
      const int64_t n = std::min(size, all - t);
      kernels.linear(split.view().slice_rows(t, n), x.view().slice_rows(t, n), *weight);
    }
    SCOPED_TRACE(cat("batches of ", size));
    expect_bit_equal(split.view(), batch.view());
  }
}

TEST_P(LinearKindTest, ThreadsDoNotChangeBits) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  if (is_cuda(backend)) return;  // it uses none
  const auto single = make_cpu_kernels(std::make_shared<ThreadPool>(1), options_of(backend));
  Rng rng(12);
  const Tensor weight = random_weight(rng, dtype, 333, 256);
  for (const int64_t tokens : {1, 9}) {
    const TestTensor x = random_tensor(rng, DType::kF32, tokens, 256);
    const TestTensor one(DType::kF32, tokens, 333), many(DType::kF32, tokens, 333);
    single->linear(one, x, *pack(*single, weight));
    kernels_of(backend).linear(many, x, *pack(kernels_of(backend), weight));
    expect_bit_equal(many.view(), one.view());
  }
}

TEST_P(LinearKindTest, EmbeddingReadsRowsExactly) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const int64_t cols = is_quantized(dtype) ? 512 : 37;
  Rng rng(13);
  const Tensor weight = random_weight(rng, dtype, 53, cols);
  const std::vector<int64_t> rows = {0, 52, 15, 16, 17, 31, 32, 15};
  const auto tokens = static_cast<int64_t>(rows.size());
  const TestTensor got(dtype_of(backend), tokens, cols, 3), want(dtype_of(backend), tokens, cols);
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t t = 0; t < tokens; ++t) {
    dequantize(dtype, ConstTensorView(weight).row_data(rows[static_cast<size_t>(t)]), row.data(), cols);
    for (int64_t i = 0; i < cols; ++i) want.view().set(t, i, row[static_cast<size_t>(i)]);
  }
  const Tensor ids = index_tensor(DType::kI32, rows);
  kernels_of(backend).embedding(got, ids, *pack(kernels_of(backend), weight));
  expect_bit_equal(got.view(), want.view());
  got.expect_padding_untouched();
  ref_kernels().embedding(got, ids, *pack(ref_kernels(), weight));
  expect_bit_equal(got.view(), want.view());
}

TEST_P(LinearKindTest, PackedSizeStaysNearTheFile) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  Rng rng(14);
  const Tensor weight = random_weight(rng, dtype, 160, 1024);
  const size_t bytes = pack(kernels_of(backend), weight)->bytes();
  const DType kept = is_cuda(backend) && !is_quantized(dtype) ? dtype_of(backend) : dtype;
  const auto least = static_cast<size_t>(160 * row_bytes(kept, 1024));
  EXPECT_LE(static_cast<double>(bytes), 1.03 * static_cast<double>(least));
  if (is_integer_group(dtype))  // as many bits as the integers need
    EXPECT_GE(bytes, static_cast<size_t>(160 * 1024 * quant_kind(dtype).bits / 8));
  else
    EXPECT_GE(bytes, least);
}

TEST_P(LinearKindTest, NaNAndInfinityStayInTheirTokens) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  Rng rng(15);
  const auto weight = pack(kernels, random_weight(rng, dtype, 40, 256));
  const TestTensor x = random_tensor(rng, dtype_of(backend), 9, 256);
  const TestTensor clean(dtype_of(backend), 9, 40), got(dtype_of(backend), 9, 40);
  kernels.linear(clean, x, *weight);
  x.view().set(0, 17, std::nan(""));
  x.view().set(1, 200, HUGE_VAL);
  kernels.linear(got, x, *weight);
  EXPECT_TRUE(std::isnan(got.at(0, 0)));
  EXPECT_FALSE(std::isfinite(got.at(1, 0)) && std::isfinite(got.at(1, 1)));
  expect_bit_equal(got.view().slice_rows(2, 7), clean.view().slice_rows(2, 7));
}

INSTANTIATE_TEST_SUITE_P(Kinds, LinearKindTest,
                         ::testing::Combine(::testing::ValuesIn(linear_backends()),
                                            ::testing::ValuesIn(kWeightKinds)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

class LinearRoundedTest : public ::testing::TestWithParam<std::tuple<Backend, DType, LinearCase>> {};

// x in bf16, to nearest even.
TestTensor in_bf16(const TestTensor& x) {
  TestTensor rounded(DType::kF32, x.view().rows(), x.view().cols());
  for (int64_t t = 0; t < x.view().rows(); ++t)
    for (int64_t k = 0; k < x.view().cols(); ++k)
      rounded.view().set(t, k, to_float(to_bf16(static_cast<float>(x.at(t, k)))));
  return rounded;
}

// x with 32 columns of a row rounded to multiples of max|x| / 127.
TestTensor in_bytes(const TestTensor& x) {
  TestTensor rounded(DType::kF32, x.view().rows(), x.view().cols());
  for (int64_t t = 0; t < x.view().rows(); ++t) {
    for (int64_t first = 0; first < x.view().cols(); first += 32) {
      float most = 0;
      for (int64_t k = first; k < first + 32; ++k)
        most = std::max(most, std::abs(static_cast<float>(x.at(t, k))));
      for (int64_t k = first; k < first + 32; ++k) {
        const float q = std::nearbyint(static_cast<float>(x.at(t, k)) * (127 / most));
        EXPECT_LE(std::abs(static_cast<double>(q * (most / 127)) - x.at(t, k)), most / 254.0 * 1.0001);
        rounded.view().set(t, k, q * (most / 127));
      }
    }
  }
  return rounded;
}

TEST_P(LinearRoundedTest, IsTheReferenceOfRoundedTokens) {
  const auto& [backend, dtype, c] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const int64_t cols = cols_of(c, dtype);
  Rng rng(c.seed);
  const Tensor weight = random_weight(rng, dtype, c.rows, cols);
  const TestTensor x = random_tensor(rng, DType::kF32, c.tokens, cols, c.fill, c.padding);
  const TestTensor bias = random_tensor(rng, DType::kF32, 1, c.rows);
  const TestTensor want(DType::kF64, c.tokens, c.rows), got(DType::kF32, c.tokens, c.rows, c.padding);
  const TestTensor rounded = dtype == DType::kBF16 ? in_bf16(x) : in_bytes(x);
  ref_kernels().linear(want, rounded, *pack(ref_kernels(), weight), vector_view(bias, c.bias));
  kernels_of(backend).linear(got, x, *pack(kernels_of(backend), weight), vector_view(bias, c.bias));
  const TestTensor total(DType::kF64, c.tokens, c.rows);
  ref_kernels().linear(total, absolute(rounded), *pack(ref_kernels(), magnitudes(weight)));
  expect_close(got, want,
               [&](int64_t t, int64_t n, double v) { return linear_bound(cols, total.at(t, n), v); });
  got.expect_padding_untouched();
}

constexpr LinearCase kInt8Cases[] = {{1, 1, 1},
                                     {1, 67, 2, true},
                                     {2, 37, 3, false, Fill::kOrdinary, 5},
                                     {3, 31, 2},
                                     {4, 33, 1, true, Fill::kTiny},
                                     {5, 16, 9},
                                     {6, 40, 2},
                                     {7, 19, 2, true, Fill::kHuge, 3},
                                     {9, 16, 1, false, Fill::kEqual},
                                     {13, 48, 2},
                                     {31, 150, 1},
                                     {131, 20, 1, true},
                                     // Threads with more panels than a tile of so many tokens takes at once.
                                     {4, 570, 2},
                                     {5, 950, 1, true},
                                     {8, 760, 2, false, Fill::kOrdinary, 3},
                                     {24, 570, 1},
                                     // Tiles of two sizes that take 3 and 2, and many tiles.
                                     {17, 570, 2},
                                     {27, 570, 1, true},
                                     {150, 380, 1}};
constexpr std::array kInt8Kinds = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,
                                   DType::kQ8_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
constexpr std::array kIntegerGroups = {DType::kU4G32, DType::kU4G128, DType::kU5G32, DType::kI8G64};

std::string rounded_case_name(const ::testing::TestParamInfo<LinearRoundedTest::ParamType>& test) {
  const auto& [backend, dtype, c] = test.param;
  return name_of(backend, dtype, c);
}

INSTANTIATE_TEST_SUITE_P(Cases, LinearRoundedTest,
                         ::testing::Combine(::testing::ValuesIn(kRoundedBackends),
                                            ::testing::ValuesIn(kInt8Kinds), ::testing::ValuesIn(kInt8Cases)),
                         rounded_case_name);
INSTANTIATE_TEST_SUITE_P(Groups, LinearRoundedTest,
                         ::testing::Combine(::testing::ValuesIn(kRoundedBackends),
                                            ::testing::ValuesIn(kIntegerGroups),
                                            ::testing::ValuesIn(kInt8Cases)),
                         rounded_case_name);
// Several chunks of tokens, for which panels are decoded once each.
INSTANTIATE_TEST_SUITE_P(Chunks, LinearRoundedTest,
                         ::testing::Combine(::testing::ValuesIn(kRoundedBackends),
                                            ::testing::Values(DType::kQ4_1, DType::kQ8_0),
                                            ::testing::Values(LinearCase{200, 20, 128, true})),
                         rounded_case_name);
INSTANTIATE_TEST_SUITE_P(ChunksOfLargeBlocks, LinearRoundedTest,
                         ::testing::Combine(::testing::ValuesIn(kRoundedBackends),
                                            ::testing::Values(DType::kQ5_K, DType::kQ6_K),
                                            ::testing::Values(LinearCase{330, 50, 16, true})),
                         rounded_case_name);
INSTANTIATE_TEST_SUITE_P(BF16, LinearRoundedTest,
                         ::testing::Combine(::testing::Values(Backend::kAvx512BF16Rounded),
                                            ::testing::Values(DType::kBF16), ::testing::ValuesIn(kCases)),
                         rounded_case_name);

class LinearIntegersTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// Integers in groups: the least zero of the kind and the largest in turns.
void set_extreme_zeros(const Tensor& weight) {
  const int bits = quant_kind(weight.dtype()).bits;
  const auto step = static_cast<size_t>(block_bytes(weight.dtype()));
  for (size_t at = 0; at < weight.bytes(); at += step) {
    const int32_t zero = (at / step % 2 == 0 ? 0 : 1 << bits) - (bits == 8 ? 128 : 0);
    std::memcpy(weight.span<uint8_t>().data() + at + sizeof(float), &zero, sizeof(zero));
  }
}

// The largest integers of both sides in every column: no sum inside the kernels may saturate.
TEST_P(LinearIntegersTest, ExtremeOnesDoNotSaturate) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const std::pair<int64_t, uint8_t> cases[] = {{14, 0x00}, {14, 0x7f}, {14, 0x80}, {14, 0xff},
                                               {70, 0x00}, {70, 0x7f}, {70, 0x80}, {70, 0xff}};
  for (const auto& [tokens, bits] : cases) {
    Rng rng(31);
    const Tensor weight = random_weight(rng, dtype, 16, 256, bits);
    if (is_integer_group(dtype)) set_extreme_zeros(weight);
    const TestTensor x(dtype_of(backend), tokens, 256);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t k = 0; k < 256; ++k)
        x.view().set(t, k, t % 3 == 0 ? 1 : t % 3 == 1 ? -1 : k % 2 == 0 ? 1 : -1);  // 127 or -127 in bytes
    const TestTensor want(DType::kF64, tokens, 16), got(dtype_of(backend), tokens, 16),
        total(DType::kF64, tokens, 16);
    ref_kernels().linear(want, x, *pack(ref_kernels(), weight));
    ref_kernels().linear(total, absolute(x), *pack(ref_kernels(), magnitudes(weight)));
    kernels_of(backend).linear(got, x, *pack(kernels_of(backend), weight));
    SCOPED_TRACE(cat(tokens, " tokens, bytes of ", static_cast<int>(bits)));
    expect_close(got, want, [&](int64_t t, int64_t n, double v) {
      return linear_bound(256, total.at(t, n), v) + weight_error(backend, total.at(t, n), 1, 256) +
             store_error(backend, v);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, LinearIntegersTest,
                         ::testing::Combine(::testing::ValuesIn(linear_backends()),
                                            ::testing::ValuesIn(kInt8Kinds)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

INSTANTIATE_TEST_SUITE_P(Groups, LinearIntegersTest,
                         ::testing::Combine(::testing::ValuesIn(kRoundedBackends),
                                            ::testing::ValuesIn(kIntegerGroups)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

class ColumnOrderTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// The bits of a product with x's columns in that order, whichever way the kind and the number of tokens go.
TEST_P(ColumnOrderTest, EqualsOrderedTokens) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  constexpr int64_t kRows = 64, kCols = 512;
  Rng rng(41);
  const Tensor weight = random_weight(rng, dtype, kRows, kCols);
  const std::vector<int32_t> order = random_order(rng, kCols);
  const auto plain = pack(kernels, weight), ordered = pack(kernels, weight, order);
  EXPECT_GE(ordered->bytes(), plain->bytes());
  for (const int64_t tokens : {1, 3, 20, 70}) {
    const DType type = dtype_of(backend);
    const TestTensor x = random_tensor(rng, type, tokens, kCols, Fill::kOrdinary, 8);
    const TestTensor moved(type, tokens, kCols, 8);
    order_columns(moved, x, order);
    const TestTensor got(type, tokens, kRows), want(type, tokens, kRows);
    kernels.linear(got, x, *ordered);
    kernels.linear(want, moved, *plain);
    expect_bit_equal(got.view(), want.view());
    const TestTensor up(type, tokens, kRows), gated(type, tokens, kRows / 2),
        want_gated(type, tokens, kRows / 2);
    kernels.linear_glu(gated, up, x, *ordered, std::nullopt, Activation::kSilu);
    kernels.linear_glu(want_gated, up, moved, *plain, std::nullopt, Activation::kSilu);
    expect_bit_equal(gated.view(), want_gated.view());
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, ColumnOrderTest,
                         ::testing::Combine(::testing::ValuesIn(linear_backends()),
                                            ::testing::Values(DType::kU4G128, DType::kU4G32, DType::kI8G64,
                                                              DType::kF8G64, DType::kQ6_K, DType::kBF16)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

// The reference sums in x's order of columns.
TEST(ColumnOrder, ReferenceUndoesIt) {
  Rng rng(42);
  const Tensor weight = random_weight(rng, DType::kU4G32, 5, 96);
  const std::vector<int32_t> order = random_order(rng, 96);
  const TestTensor x = random_tensor(rng, DType::kF64, 3, 96), moved(DType::kF64, 3, 96);
  order_columns(moved, x, order);
  const TestTensor got(DType::kF64, 3, 5), want(DType::kF64, 3, 5);
  ref_kernels().linear(got, x, *pack(ref_kernels(), weight, order));
  ref_kernels().linear(want, moved, *pack(ref_kernels(), weight));
  const double terms = 96 * 3 * 3;  // of x up to 3 and weights up to 3
  expect_close(got, want, [&](int64_t, int64_t, double) { return terms * 96 * 0x1p-53; });
}

class LinearCodesTest : public ::testing::TestWithParam<Backend> {};

// All codes of 8-bit floats, row r holding 64 r to 64 r + 63.
Tensor every_code(float scale, bool with_nan) {
  Tensor weight(DType::kF8G64, {4, 64});
  for (int64_t r = 0; r < 4; ++r) {
    auto* block = weight.view().row<uint8_t>(r);
    std::memcpy(block, &scale, sizeof(scale));
    for (int64_t k = 0; k < 64; ++k) {
      const int64_t code = 64 * r + k;
      block[4 + k] = static_cast<uint8_t>(code % 128 == 127 && !with_nan ? 0 : code);
    }
  }
  return weight;
}

// A product with a row of the unit matrix is one exact number in all types that activations have.
TEST_P(LinearCodesTest, EachIsExact) {
  LMD_REQUIRE_BACKEND(GetParam());
  const DType dtype = dtype_of(GetParam());
  const Tensor weight = every_code(0.25f, false);
  for (const int64_t tokens : {1, 64, 100}) {
    const TestTensor x(dtype, tokens, 64), got(dtype, tokens, 4), want(DType::kF64, tokens, 4);
    for (int64_t first = 0; first < 64; first += tokens) {
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t k = 0; k < 64; ++k) x.view().set(t, k, (first + t) % 64 == k ? 1 : 0);
      kernels_of(GetParam()).linear(got, x, *pack(kernels_of(GetParam()), weight));
      ref_kernels().linear(want, x, *pack(ref_kernels(), weight));
      expect_close(got, want, [](int64_t, int64_t, double) { return 0; });
    }
  }
}

TEST_P(LinearCodesTest, NaNMakesItsRowsNaN) {
  LMD_REQUIRE_BACKEND(GetParam());
  const DType dtype = dtype_of(GetParam());
  for (const int64_t tokens : {1, 20, 100}) {
    const TestTensor x(dtype, tokens, 64), got(dtype, tokens, 4);
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t k = 0; k < 64; ++k) x.view().set(t, k, 0.5);
    kernels_of(GetParam()).linear(got, x, *pack(kernels_of(GetParam()), every_code(0.25f, true)));
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t n = 0; n < 4; ++n)
        EXPECT_EQ(std::isnan(got.at(t, n)), n % 2 == 1) << "[" << t << ", " << n << "]";
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, LinearCodesTest, ::testing::ValuesIn(linear_backends()),
                         [](const auto& test) { return to_string(test.param); });

class StackedPartsTest : public ::testing::TestWithParam<Backend> {};

// q, k and v of different kinds and heights, none a multiple of a panel, from rows that lie apart.
TEST_P(StackedPartsTest, EqualThePartsAlone) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  Rng rng(21);
  const TestTensor f32 = random_tensor(rng, DType::kF32, 19, 256, Fill::kOrdinary, 7);
  const Tensor q4 = random_weight(rng, DType::kQ4_1, 33, 256), q6 = random_weight(rng, DType::kQ6_K, 5, 256);
  const ConstTensorView parts[] = {f32, q4, q6};
  const TestTensor bias = random_tensor(rng, DType::kF32, 1, 57);
  for (const int64_t tokens : {1, 20, 30, 70}) {
    if (is_cuda(GetParam()) && tokens > 20) continue;  // a library takes some of the parts
    const TestTensor x = random_tensor(rng, dtype_of(GetParam()), tokens, 256);
    const TestTensor got(dtype_of(GetParam()), tokens, 57), want(dtype_of(GetParam()), tokens, 57);
    kernels.linear(got, x, *kernels.pack_weight(parts), vector_view(bias, true));
    int64_t row = 0;
    for (const ConstTensorView& part : parts) {
      const ConstTensorView part_bias(bias.view().data() + row * 4, DType::kF32, {part.rows()});
      kernels.linear(want.view().slice_cols(row, part.rows()), x, *kernels.pack_weight({&part, 1}),
                     part_bias);
      row += part.rows();
    }
    expect_bit_equal(got.view(), want.view());
  }
  const Tensor ids = index_tensor(DType::kI32, {18, 19, 51, 52, 56});
  const TestTensor got(dtype_of(GetParam()), 5, 256), want(dtype_of(GetParam()), 5, 256);
  kernels.embedding(got, ids, *kernels.pack_weight(parts));
  ref_kernels().embedding(want, ids, *ref_kernels().pack_weight(parts));
  expect_bit_equal(got.view(), want.view());
}

INSTANTIATE_TEST_SUITE_P(Isas, StackedPartsTest, ::testing::ValuesIn(linear_backends()),
                         [](const auto& test) { return to_string(test.param); });

class CudaLinearTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// What CUDA promises where a library multiplies: the same call gives the same bits, and a row's depend on the
// number of rows beside it, not on what they hold.
TEST_P(CudaLinearTest, RowsDependOnTheNumberOfOthersOnly) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const Kernels& kernels = kernels_of(backend);
  Rng rng(17);
  const auto weight = pack(kernels, random_weight(rng, dtype, 256, 512));
  const TestTensor x = random_tensor(rng, dtype_of(backend), 70, 512),
                   other = random_tensor(rng, dtype_of(backend), 70, 512);
  const TestTensor first(dtype_of(backend), 70, 256), again(dtype_of(backend), 70, 256),
      moved(dtype_of(backend), 70, 256);
  kernels.linear(first, x, *weight);
  kernels.linear(again, x, *weight);
  expect_bit_equal(again.view(), first.view());
  for (int64_t k = 0; k < 512; ++k) other.view().set(7, k, x.at(7, k));
  kernels.linear(moved, other, *weight);
  expect_bit_equal(moved.view().slice_rows(7, 1), first.view().slice_rows(7, 1));
}

class CudaBatchInvariantTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// What CudaOptions::batch_invariant promises, of all ways that a weight may be multiplied.
TEST_P(CudaBatchInvariantTest, ARowIsTheSameInAnyBatch) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  const DeviceMirror kernels(make_cuda_kernels(test_threads(), dtype_of(backend), {.batch_invariant = true}));
  const int64_t cols = is_quantized(dtype) ? 512 : 520;
  constexpr int64_t kRows = 192, kAll = 150;
  Rng rng(19);
  const auto weight = pack(kernels, random_weight(rng, dtype, kRows, cols));
  const TestTensor x = random_tensor(rng, dtype_of(backend), kAll, cols);
  const auto multiply = [&](const TestTensor& out, const TestTensor& glu, int64_t first, int64_t count) {
    const TestTensor up(dtype_of(backend), count, kRows);
    kernels.linear(out.view().slice_rows(first, count), x.view().slice_rows(first, count), *weight);
    kernels.linear_glu(glu.view().slice_rows(first, count), up, x.view().slice_rows(first, count), *weight,
                       std::nullopt, Activation::kSilu);
  };
  const TestTensor whole(dtype_of(backend), kAll, kRows), whole_glu(dtype_of(backend), kAll, kRows / 2);
  multiply(whole, whole_glu, 0, kAll);
  for (const int64_t size : {1, 7, 8, 9, 16, 17, 32, 33, 65}) {
    const TestTensor split(dtype_of(backend), kAll, kRows), split_glu(dtype_of(backend), kAll, kRows / 2);
    for (int64_t t = 0; t < kAll; t += size) multiply(split, split_glu, t, std::min(size, kAll - t));
    SCOPED_TRACE(cat("batches of ", size));
    expect_bit_equal(split.view(), whole.view());
    expect_bit_equal(split_glu.view(), whole_glu.view());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CudaBatchInvariantTest,
    ::testing::Combine(::testing::ValuesIn(kCudaBackends),
                       ::testing::Values(DType::kBF16, DType::kF16, DType::kF32, DType::kQ8_0, DType::kQ4_K,
                                         DType::kU4G128, DType::kF8G64)),
    [](const auto& test) { return cat(std::get<0>(test.param), "_", std::get<1>(test.param)); });

INSTANTIATE_TEST_SUITE_P(Kinds, CudaLinearTest,
                         ::testing::Combine(::testing::ValuesIn(kCudaBackends),
                                            ::testing::Values(DType::kBF16, DType::kQ4_K)),
                         [](const auto& test) {
                           return cat(std::get<0>(test.param), "_", std::get<1>(test.param));
                         });

TEST(PackWeight, CpuHasNoF64) {
  const Tensor weight(DType::kF64, {4, 4});
  const ConstTensorView parts[] = {weight};
  try {
    kernels_of(Backend::kPortable).pack_weight(parts);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("f64"), std::string::npos);
  }
}

TEST(RefLinear, KeepsF64WeightsAndAddsTheBias) {
  const TestTensor weight(DType::kF64, 2, 2), x(DType::kF64, 1, 2), out(DType::kF64, 1, 2);
  const double tiny = 0x1p-40;  // lost in f32
  weight.view().set(0, 0, 1 + tiny), weight.view().set(0, 1, 2);
  weight.view().set(1, 0, 3), weight.view().set(1, 1, -4);
  x.view().set(0, 0, 1), x.view().set(0, 1, 0.5);
  Tensor bias(DType::kF32, {2});
  bias.span<float>()[0] = 10;
  bias.span<float>()[1] = 20;
  const ConstTensorView parts[] = {weight};
  ref_kernels().linear(out, x, *ref_kernels().pack_weight(parts), ConstTensorView(bias));
  EXPECT_EQ(out.at(0, 0), 12 + tiny);
  EXPECT_EQ(out.at(0, 1), 21);
}

}  // namespace
}  // namespace lmdeploy
