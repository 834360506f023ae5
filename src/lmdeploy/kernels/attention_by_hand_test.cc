// The reference's attention against softmaxes made by hand.
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy {
namespace {

// The reference against a hand-made softmax: layout, causal mask, grouping and scale.
TEST(RefAttention, TwoTokensTwoHeads) {
  KvCacheView view = {
      .layout = {.dtype = DType::kF64, .num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .block_len = 1},
      .num_blocks = 2};
  const Tensor memory(DType::kF64, {view.layout.block_elements() * 2});
  view.data = memory.view().data();
  const TestTensor k(DType::kF64, 2, 1), v(DType::kF64, 2, 1), q(DType::kF64, 2, 2), out(DType::kF64, 2, 2);
  k.view().set(0, 0, 1), k.view().set(1, 0, 2), v.view().set(0, 0, 10), v.view().set(1, 0, 20);
  for (int64_t t = 0; t < 2; ++t) q.view().set(t, 0, 0), q.view().set(t, 1, std::log(3.0));
  ref_kernels().kv_write(view, 0, k, v, index_tensor(DType::kI64, {1, 0}));
  Tensor table(DType::kI32, {1, 2});
  table.span<int32_t>()[0] = 1;
  table.span<int32_t>()[1] = 0;
  const Tensor start = index_tensor(DType::kI32, {0, 2}), kv_len = index_tensor(DType::kI32, {2});
  ref_kernels().attention(out, q, view, {start, kv_len, table}, {.scale = 1, .layer = 0, .num_heads = 2});
  EXPECT_NEAR(out.at(0, 0), 10, 1e-12);                  // sees itself only
  EXPECT_NEAR(out.at(1, 0), 15, 1e-12);                  // equal scores
  EXPECT_NEAR(out.at(1, 1), (10 + 3 * 20) / 4.0, 1e-9);  // weights 3^1 : 3^2
}

// The reference against hand-made softmaxes: one head over three keys of scores 1, 2 and 3, whose values are
// 10, 20 and 30.
TEST(RefAttention, EachOptionByHand) {
  KvCacheView view = {
      .layout = {.dtype = DType::kF64, .num_layers = 1, .num_kv_heads = 1, .head_dim = 1, .block_len = 4},
      .num_blocks = 1};
  const Tensor memory(DType::kF64, {view.layout.block_elements()});
  view.data = memory.view().data();
  const TestTensor k(DType::kF64, 3, 1), v(DType::kF64, 3, 1), q(DType::kF64, 1, 1);
  for (int64_t t = 0; t < 3; ++t) {
    k.view().set(t, 0, static_cast<double>(t + 1));
    v.view().set(t, 0, static_cast<double>(10 * (t + 1)));
  }
  q.view().set(0, 0, 2);  // times the scale of 1/2
  ref_kernels().kv_write(view, 0, k, v, index_tensor(DType::kI64, {0, 1, 2}));
  const Tensor start = index_tensor(DType::kI32, {0, 1}), kv_len = index_tensor(DType::kI32, {3});
  const Tensor table = index_tensor(DType::kI32, {0});
  const ConstTensorView blocks(table.view().data(), DType::kI32, {1, 1});
  const auto attend = [&](AttentionOptions options) {
    const TestTensor out(DType::kF64, 1, 1);
    options.scale = 0.5;
    options.num_heads = 1;
    ref_kernels().attention(out, q, view, {start, kv_len, blocks}, options);
    return out.at(0, 0);
  };
  const auto weighted = [](double a, double b, double c, double sink = 0) {
    return (10 * a + 20 * b + 30 * c) / (a + b + c + sink);
  };
  Tensor one(DType::kF32, {1});
  const double e = std::exp(1.0);
  EXPECT_NEAR(attend({}), weighted(e, e * e, e * e * e), 1e-12);
  EXPECT_NEAR(attend({.window = 2}), weighted(0, 1, e), 1e-12);
  EXPECT_NEAR(attend({.window = 1}), 30, 1e-12);
  const auto capped = [](double s) { return std::exp(2 * std::tanh(s / 2)); };
  EXPECT_NEAR(attend({.soft_cap = 2}), weighted(capped(1), capped(2), capped(3)), 1e-12);
  one.span<float>()[0] = 4;
  EXPECT_NEAR(attend({.sinks = one}), weighted(e, e * e, e * e * e, e * e * e * e), 1e-12);
  one.span<float>()[0] = 0.5;  // scores 0, 1.5, 3
  EXPECT_NEAR(attend({.alibi_slopes = one}), weighted(1, std::exp(1.5), std::exp(3.0)), 1e-12);
  one.span<float>()[0] = 1.003f;  // 1 in bf16: scores 1, 2.5, 4
  EXPECT_NEAR(attend({.alibi_slopes = one, .alibi_in_bf16 = true}), weighted(1, std::exp(1.5), std::exp(3.0)),
              1e-12);
  view.layout.latent_dim = 1;  // values are the keys
  EXPECT_NEAR(attend({}), weighted(e, e * e, e * e * e) / 10, 1e-12);
}

}  // namespace
}  // namespace lmdeploy
