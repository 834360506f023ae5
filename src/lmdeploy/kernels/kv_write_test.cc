// kv_write against the reference.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

class KvWriteTest : public ::testing::TestWithParam<std::tuple<Backend, DType>> {};

// The same bytes as the reference, which rounds f32 to the cache's dtype once; everything else stays as it
// was.
TEST_P(KvWriteTest, IsBitEqualToReference) {
  const auto& [backend, dtype] = GetParam();
  LMD_REQUIRE_BACKEND(backend);
  LMD_REQUIRE_CACHE(backend, dtype);
  Rng rng(31);
  for (const auto& [head_dim, latent_dim] :
       {std::pair{1, 0}, {5, 0}, {16, 0}, {19, 0}, {64, 0}, {19, 7}, {40, 32}}) {
    KvCacheView view = {.layout = {.dtype = dtype,
                                   .num_layers = 3,
                                   .num_kv_heads = 2,
                                   .head_dim = head_dim,
                                   .block_len = 5,
                                   .latent_dim = latent_dim},
                        .num_blocks = 4};
    const Tensor want(DType::kU8, {4 * view.layout.block_bytes()}),
        got(DType::kU8, {4 * view.layout.block_bytes()});
    std::memset(want.view().data(), 0x5a, want.bytes());
    std::memset(got.view().data(), 0x5a, got.bytes());
    const TestTensor k = random_tensor(rng, dtype_of(backend), 6, 2 * head_dim, Fill::kOrdinary, 3);
    const TestTensor v = random_tensor(rng, dtype_of(backend), 6, 2 * head_dim);
    // Subnormal in f16, out of its range, ties, zeros and infinities.
    const double odd[] = {1e-7,     -3e-8, 65519.9,     65520,     1e30,  -0.0,
                          HUGE_VAL, 2049,  1 + 0x1p-11, 0x1.018p0, 6.1e-5};
    for (int64_t i = 0; i < 11; ++i) k.view().set(i % 6, i % (2 * head_dim), odd[i]);
    const Tensor slots = index_tensor(DType::kI64, {0, 19, 4, 5, 13, 7});
    view.data = want.view().data();
    ref_kernels().kv_write(view, 1, k, v, slots);
    view.data = got.view().data();
    kernels_of(backend).kv_write(view, 1, k, v, slots);
    EXPECT_EQ(std::memcmp(got.view().data(), want.view().data(), want.bytes()), 0)
        << "head_dim " << head_dim << ", latent_dim " << latent_dim;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, KvWriteTest,
    ::testing::Combine(::testing::ValuesIn(all_backends()),
                       ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU4)),
    [](const auto& test) { return cat(std::get<0>(test.param), "_", std::get<1>(test.param)); });

}  // namespace
}  // namespace lmdeploy
