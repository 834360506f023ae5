// The accounting of a step against sums written out by hand.
#include "lmdeploy/models/step_work.h"

#include <gtest/gtest.h>

#include "backends.h"
#include "random_family.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

// Rows in whole panels: packed weights are as large as the stored ones.
constexpr LlamaShape kShape = {.hidden = 64,
                               .inner = 96,
                               .layers = 2,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 16,
                               .vocab = 80,
                               .dtype = DType::kBF16};
constexpr double kQkv = 64 * (64 + 32 + 32), kO = 64 * 64, kMlp = 3 * 64 * 96, kHead = 80 * 64;
constexpr double kNorms = 5 * 64 * 4;  // bytes

std::unique_ptr<Model> load(const LlamaShape& shape) {
  return load_model(make_random_llama(shape, 1), backend(backend_names().back()), {});
}

TEST(StepWork, SeenKeys) {
  EXPECT_EQ(seen_keys(1, 10, 0).distinct, 10);
  EXPECT_EQ(seen_keys(1, 10, 0).pairs, 10);
  EXPECT_EQ(seen_keys(4, 4, 0).pairs, 1 + 2 + 3 + 4);
  EXPECT_EQ(seen_keys(2, 10, 0).pairs, 9 + 10);
  EXPECT_EQ(seen_keys(3, 10, 4).distinct, 6);  // keys 4 to 9
  EXPECT_EQ(seen_keys(3, 10, 4).pairs, 12);
  EXPECT_EQ(seen_keys(3, 3, 2).pairs, 1 + 2 + 2);
}

TEST(StepWork, ADecodeStepReadsAllButTheTableOnce) {
  const auto model = load(kShape);
  const StepWork one = model->step_work({.kv_len = 7}, DType::kF16);
  const double matrices = 2 * (kQkv + kO + kMlp) + kHead;
  EXPECT_EQ(one.weight_bytes, 2 * matrices + kNorms + 2 * 64);
  EXPECT_EQ(one.weight_bytes, static_cast<double>(model->weight_bytes()) - 2 * 79 * 64);
  EXPECT_EQ(one.kv_bytes, 2 * 7 * 2 * (2 * 16) * 2);  // layers, keys, K and V, elements, bytes
  EXPECT_EQ(one.attention_flops, 2 * 2 * 7 * 4 * (16 + 16));
  EXPECT_EQ(one.flops, 2 * matrices + one.attention_flops);
  const StepWork three = model->step_work({.num_sequences = 3, .kv_len = 7}, DType::kF32);
  EXPECT_EQ(three.weight_bytes, one.weight_bytes + 2 * 2 * 64);
  EXPECT_EQ(three.kv_bytes, 2 * 3 * one.kv_bytes);
  EXPECT_EQ(three.flops, 3 * one.flops);
}

TEST(StepWork, ATiedTableIsReadAsTheHead) {
  LlamaShape tied = kShape;
  tied.tied = true;
  EXPECT_EQ(load(tied)->step_work({}, DType::kF16).weight_bytes,
            load(kShape)->step_work({}, DType::kF16).weight_bytes);
}

TEST(StepWork, APromptDropsRowsAfterTheLastAttention) {
  const StepWork work = load(kShape)->step_work({.tokens = 5, .kv_len = 5}, DType::kF16);
  EXPECT_EQ(work.flops, 2 * (5 * (2 * kQkv + kO + kMlp) + kO + kMlp + kHead) + 2 * 2 * 15 * 4 * (16 + 16));
  const StepWork silent = load(kShape)->step_work({.tokens = 5, .kv_len = 5, .logit_rows = 0}, DType::kF16);
  EXPECT_EQ(silent.flops, 2 * 5 * (2 * kQkv + kO + kMlp) + 2 * 2 * 15 * 4 * (16 + 16));
  EXPECT_EQ(silent.weight_bytes, 2 * (2 * kQkv + kO + kMlp) + kNorms - 2 * 4 * 64 + 5 * 2 * 64);
}

TEST(StepWork, OfExpertsThoseThatAreChosen) {
  constexpr int64_t kHidden = 64, kInner = 32, kExperts = 8, kTopK = 2;
  const JsonObject config = {{"architectures", JsonArray{"MixtralForCausalLM"}},
                             {"hidden_size", kHidden},
                             {"intermediate_size", kInner},
                             {"num_hidden_layers", 1},
                             {"num_attention_heads", 4},
                             {"num_key_value_heads", 4},
                             {"vocab_size", 80},
                             {"num_local_experts", kExperts},
                             {"num_experts_per_tok", kTopK}};
  const MemoryCheckpoint checkpoint = make_random_family(config, 1);
  double row_bytes = 0, expert_bytes = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const auto bytes = static_cast<double>(lmdeploy::row_bytes(tensor.dtype, tensor.shape.numel()));
    if (tensor.name.find(".experts.") != std::string::npos) expert_bytes += bytes;
    if (tensor.name == "model.embed_tokens.weight") row_bytes = bytes / 80;
  }
  const auto model = load_model(checkpoint, backend(backend_names().back()), {});
  const auto all_bytes = static_cast<double>(model->weight_bytes());
  const StepWork one = model->step_work({}, DType::kF32),
                 two = model->step_work({.num_sequences = 2}, DType::kF32);
  // Of 8 experts, one token reads 2; two tokens that choose 2 each hit 3.5 on average.
  EXPECT_NEAR(one.weight_bytes, all_bytes - 79 * row_bytes - expert_bytes * 6 / 8, 1e-3);
  EXPECT_NEAR(two.weight_bytes, all_bytes - 78 * row_bytes - expert_bytes * 4.5 / 8, 1e-3);
  constexpr double kExpert = 3 * kHidden * kInner, kOthers = (4 * 64 + kExperts + 80) * kHidden;
  EXPECT_EQ(one.flops, 2 * (kOthers + kTopK * kExpert) + 2 * (64 + 64));
}

}  // namespace
}  // namespace lmdeploy::testing
