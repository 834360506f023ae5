// Ops that are sequences of others give the sequence's bits.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

class FusedTest : public ::testing::TestWithParam<Backend> {};

TEST_P(FusedTest, LinearGluIsLinearThenGlu) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  const DType dtype = dtype_of(GetParam());
  Rng rng(5);
  for (const int64_t inner : {8, 20, 64})
    for (const int64_t cols : {40, 512, 1096})
      for (const int64_t tokens : {1, 3, 8, 9, 16, 20, 33, 70, 130})
        for (const DType kind : {DType::kF16, DType::kBF16, DType::kF32, DType::kU4G128, DType::kQ4_1})
          for (const bool has_bias : {false, true}) {
            if (cols % block_size(kind) != 0) continue;
            SCOPED_TRACE(cat(tokens, " tokens, ", cols, " columns, ", inner, " gates, ", kind,
                             has_bias ? ", bias" : ""));
            const Tensor weight = random_weight(rng, kind, 2 * inner, cols);
            const std::unique_ptr<PackedWeight> packed = pack(kernels, weight);
            const TestTensor x = random_tensor(rng, dtype, tokens, cols);
            const TestTensor bias = random_tensor(rng, DType::kF32, 1, 2 * inner);
            std::optional<ConstTensorView> bias_view;
            if (has_bias) bias_view = ConstTensorView(bias.view().data(), DType::kF32, {2 * inner});
            const TestTensor space(dtype, tokens, 2 * inner), up(dtype, tokens, 2 * inner);
            const TestTensor got(dtype, tokens, inner, 4), want(dtype, tokens, inner);  // rows of 8 bytes
            const auto activation = static_cast<Activation>(tokens % 5);
            kernels.linear_glu(got, space, x, *packed, bias_view, activation);
            kernels.linear(up, x, *packed, bias_view);
            kernels.glu(want, up, activation);
            expect_bit_equal(got, want);
            got.expect_padding_untouched();
          }
}

struct RopeCase {
  int64_t q_heads, kv_heads, head_dim, rotary_dim;
  bool interleaved = false;
  int64_t first = 0;
};

TEST_P(FusedTest, RopeKvWriteIsRopeThenKvWrite) {
  LMD_REQUIRE_BACKEND(GetParam());
  const Kernels& kernels = kernels_of(GetParam());
  const DType dtype = dtype_of(GetParam());
  constexpr RopeCase kCases[] = {
      {4, 2, 16, 16},         {3, 3, 10, 4, true}, {6, 1, 80, 32}, {2, 1, 24, 8, false, 12},
      {8, 2, 128, 128},       {5, 3, 64, 64},      {2, 2, 12, 0},  {3, 1, 64, 32, false, 16},
      {2, 2, 48, 16, true, 8}};
  Rng rng(6);
  for (const DType kv_dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU4})
    for (const RopeCase& c : kCases)
      for (const auto& [tokens, padding] : {std::pair{1, 3}, {5, 3}, {5, 0}}) {
        SCOPED_TRACE(cat(c.q_heads, " + ", c.kv_heads, " heads of ", c.head_dim, ", ", c.rotary_dim,
                         " turn, ", tokens, " tokens, padding of ", padding, ", ", kv_dtype));
        if (!kernels.takes_kv_dtype(kv_dtype)) continue;
        KvCacheView cache = {.layout = {.dtype = kv_dtype,
                                        .num_layers = 2,
                                        .num_kv_heads = c.kv_heads,
                                        .head_dim = c.head_dim,
                                        .block_len = 4},
                             .num_blocks = 3};
        const Tensor got_cache(DType::kU8, {3, cache.layout.block_bytes()}),
            want_cache(DType::kU8, {3, cache.layout.block_bytes()});
        std::memset(got_cache.view().data(), 0xff, got_cache.bytes());
        std::memset(want_cache.view().data(), 0xff, want_cache.bytes());
        const RopeOptions options = {.head_dim = c.head_dim, .interleaved = c.interleaved, .first = c.first};
        const int64_t cols = (c.q_heads + c.kv_heads) * c.head_dim, kv_cols = c.kv_heads * c.head_dim;
        const TestTensor x = random_tensor(rng, dtype, tokens, cols, Fill::kOrdinary, padding),
                         y(dtype, tokens, cols);
        kernels.copy(y, x);
        const TestTensor v = random_tensor(rng, dtype, tokens, kv_cols);
        if (tokens > 1 && cache.layout.quantized())  // their codes are 0, scale and min NaN
          v.view().set(1, kv_cols - 1, HUGE_VAL), v.view().set(2, 0, NAN);
        const TestTensor angles = random_tensor(rng, DType::kF32, tokens, std::max<int64_t>(c.rotary_dim, 1));
        const ConstTensorView table = angles.view().slice_cols(0, c.rotary_dim);
        const Tensor slots = index_tensor(
            DType::kI64, tokens == 1 ? std::vector<int64_t>{9} : std::vector<int64_t>{3, 4, 11, 0, 6});
        cache.data = got_cache.view().data();
        kernels.rope_kv_write(x, table, options, cache, 1, v, slots);
        cache.data = want_cache.view().data();
        kernels.rope(y, table, options);
        kernels.kv_write(cache, 1, y.view().slice_cols(cols - kv_cols, kv_cols), v, slots);
        expect_bit_equal(x, y);
        expect_bit_equal(got_cache, want_cache);
        x.expect_padding_untouched();
      }
}

INSTANTIATE_TEST_SUITE_P(Backends, FusedTest, ::testing::ValuesIn(all_backends()),
                         [](const auto& test) { return to_string(test.param); });

TEST(LinearGlu, ShapesAreChecked) {
  const Kernels& kernels = ref_kernels();
  Rng rng(1);
  const std::unique_ptr<PackedWeight> packed = pack(kernels, random_weight(rng, DType::kF32, 6, 4));
  const TestTensor x(DType::kF64, 2, 4), up(DType::kF64, 2, 6), out(DType::kF64, 2, 4);
  expect_invalid([&] { kernels.linear_glu(out, up, x, *packed, std::nullopt, Activation::kSilu); },
                 "linear_glu: x has shape [2, 6], expected [2, 8]");
}

TEST(RopeKvWrite, ShapesAreChecked) {
  const Kernels& kernels = ref_kernels();
  KvCacheView cache = {
      .layout = {.dtype = DType::kF64, .num_layers = 1, .num_kv_heads = 2, .head_dim = 4, .block_len = 4},
      .num_blocks = 1};
  const Tensor memory(DType::kU8, {cache.layout.block_bytes()});
  cache.data = memory.view().data();
  const TestTensor x(DType::kF64, 1, 4), table(DType::kF64, 1, 4), v(DType::kF64, 1, 8);
  expect_invalid(
      [&] { kernels.rope_kv_write(x, table, {.head_dim = 4}, cache, 0, v, index_tensor(DType::kI64, {0})); },
      "k has shape [1, 4], expected [1, 8]");
}

}  // namespace
}  // namespace lmdeploy
