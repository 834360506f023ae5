// One model said in two families' words: a family whose checkpoints no library at hand can judge must say
// what one says that is judged by golden logits. And what only a loaded model shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/models/step_runner.h"
#include "random_family.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kTokens = 23;

/// Logits of all tokens, which go in pieces of at most `piece`.
std::vector<double> logits_of(const Checkpoint& checkpoint, const std::vector<int>& ids, size_t piece = 1000,
                              int64_t rope_length = kTokens) {
  const Kernels& kernels = backend("ref");
  const auto model = load_model(checkpoint, kernels, {.max_step_tokens = 64, .max_logit_rows = 64});
  StepRunner runner(*model, kernels, {.kv_dtype = DType::kF64, .max_tokens = 64, .block_len = 4});
  runner.start(0, rope_length);
  std::vector<double> out;
  for (size_t begin = 0; begin < ids.size(); begin += piece) {
    const auto part = std::span(ids).subspan(begin, std::min(piece, ids.size() - begin));
    const StepRunner::Chunk chunk = {.ids = part, .num_logits = static_cast<int64_t>(part.size())};
    const ConstTensorView rows = runner.step({&chunk, 1});
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (int64_t c = 0; c < rows.cols(); ++c) out.push_back(rows.at(r, c));
  }
  return out;
}

double difference(const std::vector<double>& a, const std::vector<double>& b) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b.at(i)));
    largest = std::max(largest, std::abs(a[i]));
  }
  return worst / largest;
}

/// A copy with other names and shapes of some tensors.
MemoryCheckpoint rewritten(const MemoryCheckpoint& from, const JsonObject& config,
                           const std::function<Tensor(const std::string& name, ConstTensorView)>& convert) {
  MemoryCheckpoint out;
  out.mutable_config() = config;
  for (size_t i = 0; i < from.tensors().size(); ++i)
    out.add(from.tensors()[i].name, convert(from.tensors()[i].name, from.tensor(i)));
  return out;
}

/// out[i] = rows[source(i)], of a matrix or a vector.
Tensor picked(ConstTensorView x, int64_t count, const std::function<int64_t(int64_t)>& source) {
  const bool is_vector = x.rank() == 1;
  Tensor out(DType::kF32, is_vector ? Shape{count} : Shape{count, x.cols()});
  for (int64_t i = 0; i < count; ++i) {
    if (is_vector) out.view().set(i, x.at(source(i)));
    for (int64_t c = 0; !is_vector && c < x.cols(); ++c) out.view().set(i, c, x.at(source(i), c));
  }
  return out;
}
Tensor copied(ConstTensorView x) {
  return picked(x, x.dim(0), [](int64_t i) { return i; });
}
Tensor turned(ConstTensorView x) {
  Tensor out(DType::kF32, {x.cols(), x.rows()});
  for (int64_t r = 0; r < x.rows(); ++r)
    for (int64_t c = 0; c < x.cols(); ++c) out.view().set(c, r, x.at(r, c));
  return out;
}

constexpr int64_t kHeads = 5, kHeadDim = 6, kHidden = kHeads * kHeadDim;
JsonObject bigcode_config(bool multi_query) {
  return {{"architectures", JsonArray{"GPTBigCodeForCausalLM"}},
          {"n_embd", kHidden},
          {"n_head", kHeads},
          {"n_layer", 2},
          {"n_positions", 40},
          {"vocab_size", 61},
          {"activation_function", "gelu_pytorch_tanh"},
          {"multi_query", multi_query}};
}

// BigCode's q, k and v are rows by head (or q rows, one k, one v); GPT-2's are q, k and v of all heads, and
// its matrices are stored [in, out].
TEST(FamilyTwins, GptBigCodeIsGpt2InAnotherOrder) {
  for (const bool multi_query : {false, true}) {
    const MemoryCheckpoint bigcode = make_random_family(bigcode_config(multi_query), 7);
    JsonObject config = bigcode_config(multi_query);
    config["architectures"] = JsonArray{"GPT2LMHeadModel"};
    const auto qkv_row = [&](int64_t i) {
      const int64_t part = i / kHidden, head = i % kHidden / kHeadDim, within = i % kHeadDim;
      if (multi_query) return part == 0 ? i : kHidden + (part - 1) * kHeadDim + within;
      return (head * 3 + part) * kHeadDim + within;
    };
    const MemoryCheckpoint gpt2 = rewritten(bigcode, config, [&](const std::string& name, ConstTensorView x) {
      Tensor rows = name.find("c_attn") == std::string::npos ? copied(x) : picked(x, 3 * kHidden, qkv_row);
      const bool is_linear = name.find(".c_") != std::string::npos && x.rank() == 2;
      return is_linear ? turned(rows) : std::move(rows);
    });
    const std::vector<int> ids = random_ids(3, kTokens, 61);
    EXPECT_LT(difference(logits_of(bigcode, ids), logits_of(gpt2, ids)), 1e-6) << multi_query;
  }
}

// Granite has MiniCPM's factors one by one: embeddings * scale_emb, branches * scale_depth / sqrt(layers),
// logits divided by hidden_size / dim_model_base, scores * 1 / sqrt(head size).
TEST(FamilyTwins, MiniCpmIsGraniteWithFactorsOfItsOwn) {
  JsonObject config = {{"architectures", JsonArray{"MiniCPMForCausalLM"}},
                       {"hidden_size", 48},
                       {"intermediate_size", 33},
                       {"num_hidden_layers", 4},
                       {"num_attention_heads", 3},
                       {"num_key_value_heads", 1},
                       {"vocab_size", 61},
                       {"scale_emb", 12},
                       {"scale_depth", 1.4},
                       {"dim_model_base", 16}};
  const MemoryCheckpoint minicpm = make_random_family(config, 8);
  EXPECT_EQ(minicpm.tensors().size(), 2u + 4 * 9);  // tied: no output matrix
  config["architectures"] = JsonArray{"GraniteForCausalLM"};
  config["embedding_multiplier"] = 12;
  config["residual_multiplier"] = 0.7;  // 1.4 / sqrt(4)
  config["logits_scaling"] = 3;         // 48 / 16
  config["attention_multiplier"] = 0.25;
  config["tie_word_embeddings"] = true;
  const MemoryCheckpoint granite =
      rewritten(minicpm, config, [](const std::string&, ConstTensorView x) { return copied(x); });
  const std::vector<int> ids = random_ids(4, kTokens, 61);
  EXPECT_LT(difference(logits_of(minicpm, ids), logits_of(granite, ids)), 1e-6);
}

JsonObject dynamic_config() {
  return {{"architectures", JsonArray{"LlamaForCausalLM"}},
          {"hidden_size", 40},
          {"intermediate_size", 33},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 5},
          {"vocab_size", 61},
          {"max_position_embeddings", 16},
          {"rope_theta", 100.0},
          {"rope_scaling", JsonObject{{"type", "dynamic"}, {"factor", 4.0}}}};
}

// The table is chosen when the session starts; tokens that come later, past the trained length, keep it.
TEST(DynamicNtk, ATableIsKeptForTheSession) {
  const MemoryCheckpoint checkpoint = make_random_family(dynamic_config(), 9);
  const std::vector<int> ids = random_ids(5, kTokens, 61);
  const std::vector<double> from_short = logits_of(checkpoint, ids, 10, /*rope_length=*/10);
  EXPECT_LT(difference(from_short, logits_of(checkpoint, ids, 1000, 10)), 1e-12);
  EXPECT_LT(difference(from_short, logits_of(checkpoint, ids, 1, 10)), 1e-12);
  EXPECT_LT(difference(from_short, logits_of(checkpoint, ids, 1, 16)), 1e-12);  // the trained table too
  EXPECT_GT(difference(from_short, logits_of(checkpoint, ids, 10, /*rope_length=*/17)), 1e-4);
  JsonObject plain = dynamic_config();
  plain.erase("rope_scaling");
  MemoryCheckpoint unscaled = make_random_family(plain, 9);
  EXPECT_LT(difference(from_short, logits_of(unscaled, ids)), 1e-12);
}

// DeepSeek keeps (kv_lora_rank + qk_rope_head_dim) elements of a token in each layer, whatever the heads:
// V3's 576 in bf16 are 1152 bytes. In 3 layers and blocks of 16 tokens: 55296.
TEST(KvBytes, LatentAttentionKeepsOneRowForAllHeads) {
  for (const int heads : {1, 7}) {
    const JsonObject config = {{"architectures", JsonArray{"DeepseekV2ForCausalLM"}},
                               {"hidden_size", 24},
                               {"intermediate_size", 16},
                               {"num_hidden_layers", 3},
                               {"num_attention_heads", heads},
                               {"vocab_size", 31},
                               {"kv_lora_rank", 512},
                               {"qk_rope_head_dim", 64},
                               {"qk_nope_head_dim", 8},
                               {"v_head_dim", 8}};
    const auto model = load_model(make_random_family(config, 10), backend("ref"), {});
    const KvLayout layout = model->kv_layout(DType::kBF16, 16);
    EXPECT_EQ(layout.block_bytes(), 16 * 3 * 1152);
  }
}

}  // namespace
}  // namespace lmdeploy::testing
