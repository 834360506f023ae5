// Shares of quantised weights, and sizes that do not divide: what the ranks say together is what one says.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "llama_of_kind.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/testing.h"
#include "lmdeploy/models/step_runner.h"
#include "lmdeploy/models/weight_share.h"
#include "ranks.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTokens = 21;
const LoadOptions kOptions = {.max_step_tokens = 64, .max_logit_rows = 64};

Tensor logits_of(Model& model, const Kernels& kernels, int64_t vocab) {
  return all_logits(model, kernels, random_ids(3, kTokens, vocab), {13, 1});
}

double largest_of(ConstTensorView x) {
  double largest = 0;
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.cols(); ++c) largest = std::max(largest, std::abs(x.at(r, c)));
  return largest;
}

void expect_near(ConstTensorView got, ConstTensorView want, double bound) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t r = 0; r < want.rows(); ++r)
    for (int64_t c = 0; c < want.cols(); ++c)
      ASSERT_NEAR(got.at(r, c), want.at(r, c), bound) << "token " << r << ", id " << c;
}

/// Bounds: see share_of_largest() of sharded_family_test.cc.
void expect_same_on_ranks(const Checkpoint& checkpoint, int64_t ranks, int64_t vocab) {
  for (const std::string& name : {backend_names().front(), backend_names().back()}) {
    SCOPED_TRACE(cat(ranks, " ranks on ", name));
    const Kernels& kernels = backend(name);
    const auto whole = load_model(checkpoint, kernels, kOptions);
    const Tensor want = logits_of(*whole, kernels, vocab);
    RankedModel ranked(checkpoint, name, ranks, kOptions);
    const double largest = largest_of(want);
    EXPECT_GT(largest, 1e-2);
    const double share = 2e-4 * epsilon(kernels.activation_dtype()) / epsilon(DType::kF32);
    expect_near(logits_of(ranked.model(), ranked.kernels(), vocab), want, share * largest);
  }
}

struct KindCase {
  DType dtype;
  int64_t head_dim, inner;
};
void PrintTo(const KindCase& c, std::ostream* out) { *out << to_string(c.dtype); }

class ShardedKindTest : public ::testing::TestWithParam<KindCase> {};

TEST(WeightShare, BytesOfZerosAreZerosInEveryKind) {
  for (int i = 0; i <= static_cast<int>(DType::kF8G64); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (!is_float(dtype) && !is_quantized(dtype)) continue;
    const auto count = static_cast<size_t>(block_size(dtype));
    const std::vector<std::byte> block(static_cast<size_t>(block_bytes(dtype)));
    std::vector<float> values(count, 1.0f);
    dequantize(dtype, block.data(), values.data(), block_size(dtype));
    for (const float value : values) EXPECT_EQ(value, 0) << to_string(dtype);
  }
}

TEST(WeightShare, PutsRunsTogether) {
  Tensor whole(DType::kF32, {3, 4});
  for (int64_t i = 0; i < 12; ++i) whole.view().set(i / 4, i % 4, static_cast<double>(i));
  const MatrixPiece piece = {Tensor(), whole};
  const MatrixPiece share =
      take_share(piece, {{2, 1}, {ShardRun::kZeros, 1}, {0, 1}}, {{1, 2}, {ShardRun::kZeros, 1}});
  const double want[3][3] = {{9, 10, 0}, {0, 0, 0}, {1, 2, 0}};
  for (int64_t r = 0; r < 3; ++r)
    for (int64_t c = 0; c < 3; ++c) EXPECT_EQ(share.view.at(r, c), want[r][c]);
  const MatrixPiece rows = take_share(piece, {{1, 2}}, {{0, 4}});
  EXPECT_EQ(rows.view.data(), whole.view().row_data(1));  // a view
  EXPECT_EQ(take_share(std::vector<float>{1, 2, 3}, {{2, 1}, {ShardRun::kZeros, 2}, {0, 1}}),
            (std::vector<float>{3, 0, 0, 1}));
}

TEST_P(ShardedKindTest, SaysWhatItSaysWhole) {
  const KindCase& c = GetParam();
  const LlamaShape shape = {.hidden = 256,
                            .inner = c.inner,
                            .layers = 2,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = c.head_dim,
                            .vocab = 67};
  expect_same_on_ranks(make_llama_of(c.dtype, shape), 2, shape.vocab);
}

// The last rank's share of the inner size ends in blocks of zeros.
INSTANTIATE_TEST_SUITE_P(Kinds, ShardedKindTest,
                         ::testing::Values(KindCase{DType::kF16, 12, 75}, KindCase{DType::kBF16, 12, 75},
                                           KindCase{DType::kQ4_0, 16, 96}, KindCase{DType::kQ4_1, 16, 96},
                                           KindCase{DType::kQ5_0, 16, 96}, KindCase{DType::kQ5_1, 16, 96},
                                           KindCase{DType::kQ8_0, 16, 96}, KindCase{DType::kQ4_K, 128, 768},
                                           KindCase{DType::kQ5_K, 128, 768}, KindCase{DType::kQ6_K, 128, 768},
                                           KindCase{DType::kU4G32, 16, 96}, KindCase{DType::kU4G128, 64, 384},
                                           KindCase{DType::kU5G32, 16, 96}, KindCase{DType::kI8G64, 32, 192},
                                           KindCase{DType::kF8G64, 32, 192}),
                         [](const auto& test) { return std::string(to_string(test.param.dtype)); });

// Two ranks of 3 query heads, 16 elements each: 48 are no two groups of 32.
TEST(ShardedWeights, GroupsAcrossHeadsAreRefusedByName) {
  const LlamaShape shape = {
      .hidden = 96, .inner = 96, .layers = 1, .heads = 6, .kv_heads = 2, .head_dim = 16};
  const std::string refusal = refusal_of_ranks(make_llama_of(DType::kQ4_0, shape), 2);
  for (const char* word : {"attention output projection", "groups of 32", "3 heads of 16", "tp: 1"})
    EXPECT_NE(refusal.find(word), std::string::npos) << word << " in " << refusal;
}

TEST(ShardedWeights, ColumnsInAnOrderOfTheirOwnAreRefusedByName) {
  MemoryCheckpoint checkpoint =
      make_llama_of(DType::kU4G32, {.hidden = 64, .inner = 64, .layers = 1, .heads = 4, .kv_heads = 4});
  checkpoint.order_columns("model.layers.0.mlp.down_proj.weight");
  const std::string refusal = refusal_of_ranks(checkpoint, 2);
  for (const char* word : {"model.layers.0.mlp.down_proj.weight", "desc_act", "use tp 1"})
    EXPECT_NE(refusal.find(word), std::string::npos) << word << " in " << refusal;
}

// Rows of ranks keep the order that all columns have.
TEST(ShardedWeights, OrderedInputsStayOrdered) {
  const LlamaShape shape = {.hidden = 64, .inner = 96, .layers = 2, .heads = 4, .kv_heads = 2};
  MemoryCheckpoint checkpoint = make_llama_of(DType::kU4G32, shape);
  for (const char* layer : {"0", "1"})
    for (const char* name :
         {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj"})
      checkpoint.order_columns(cat("model.layers.", layer, ".", name, ".weight"));
  expect_same_on_ranks(checkpoint, 2, shape.vocab);
}

TEST(ShardedWeights, HeadsAndVocabulariesThatDoNotDivide) {
  const auto on_ranks = [](const LlamaShape& shape, int64_t ranks) {
    SCOPED_TRACE(to_string(shape));
    expect_same_on_ranks(make_random_llama(shape, 11), ranks, shape.vocab);
  };
  // 7 heads of each kv head over two ranks: 4, and 3 with one of zeros
  on_ranks({.hidden = 48, .heads = 28, .kv_heads = 4, .head_dim = 4, .attention_bias = true}, 8);
  on_ranks({.hidden = 48, .heads = 8, .kv_heads = 4, .head_dim = 8, .tied = true}, 8);
  on_ranks({.hidden = 48, .heads = 5, .kv_heads = 1, .mlp_bias = true}, 3);
  on_ranks({.hidden = 48, .heads = 4, .kv_heads = 4, .vocab = 32001}, 2);
}

TEST(ShardedWeights, RefusesHeadsBeforeAnyWeightIsRead) {
  MemoryCheckpoint checkpoint = make_random_llama({.heads = 25, .kv_heads = 5, .head_dim = 4}, 1);
  const auto start = std::chrono::steady_clock::now();
  try {
    RankedModel ranked(checkpoint, "ref", 2, kOptions);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    const std::string text = error.what();
    EXPECT_NE(text.find("25 query heads over 5 kv heads"), std::string::npos) << text;
    EXPECT_NE(text.find("tp: 1, 5, 10"), std::string::npos) << text;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  for (const int drops : checkpoint.drops()) EXPECT_EQ(drops, 0);
}

// No id above the vocabulary has a logit, whatever the ranks fill up with.
TEST(ShardedWeights, ThereAreAsManyLogitsAsIds) {
  const LlamaShape shape = {.heads = 4, .kv_heads = 4, .vocab = 13};
  RankedModel ranked(make_random_llama(shape, 1), "ref", 4, kOptions);
  StepRunner runner(ranked.model(), ranked.kernels(), {.kv_dtype = DType::kF64, .max_tokens = 8});
  runner.start(0, 2);
  const std::vector<int> ids = {1, 12};
  const StepRunner::Chunk chunk = {.ids = ids};
  EXPECT_EQ(runner.step({&chunk, 1}).cols(), 13);
}

class ShardedCacheTest : public ::testing::TestWithParam<DType> {};

// A row of a head has the same codes on a rank as in the whole model, but where rounding decides between two:
// in f64 it does not.
TEST_P(ShardedCacheTest, SaysWhatItSaysWhole) {
  const LlamaShape shape = {.hidden = 48, .heads = 4, .kv_heads = 2};
  const MemoryCheckpoint checkpoint = make_random_llama(shape, 3);
  const auto whole = load_model(checkpoint, backend("ref"), kOptions);
  RankedModel ranked(checkpoint, "ref", 2, kOptions);
  const std::vector<int> prompt = random_ids(9, 17, shape.vocab);
  const auto logits = [&](Model& model, const Kernels& kernels) {
    StepRunner runner(model, kernels, {.kv_dtype = GetParam(), .max_tokens = 32, .block_len = 4});
    runner.start(0, 17);
    const StepRunner::Chunk chunk = {.ids = prompt, .num_logits = 17};
    const ConstTensorView got = runner.step({&chunk, 1});
    Tensor copy(got.dtype(), got.shape());
    for (int64_t r = 0; r < got.rows(); ++r)
      for (int64_t c = 0; c < got.cols(); ++c) copy.view().set(r, c, got.at(r, c));
    return copy;
  };
  const Tensor want = logits(*whole, backend("ref"));
  const double bound = 2e-4 * epsilon(DType::kF64) / epsilon(DType::kF32) * largest_of(want);
  expect_near(logits(ranked.model(), ranked.kernels()), want, bound);
}

INSTANTIATE_TEST_SUITE_P(Kinds, ShardedCacheTest,
                         ::testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU4),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace lmdeploy::testing
