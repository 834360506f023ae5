// Rules of single families against tables worked out by hand or, where a derivation is given, with Python's
// decimal module.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/attention_block.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/spec_check.h"

namespace lmdeploy {
namespace {

DecoderSpec spec_of(const std::string& text) {
  const Json config = parse_json(text, "test");
  const ConfigReader cfg(config, "config.json");
  return checked_spec(find_family(cfg), cfg);
}

// log(position + 1) / log(16) from the 17th token on: 31 -> 5/4, 63 -> 6/4, 255 -> 8/4.
TEST(Formulas, QwenLognWithTrainingLength16) {
  const std::pair<int64_t, double> table[] = {
      {0, 1}, {14, 1}, {15, 1}, {16, 1.021865710313}, {17, 1.042481250361}, {31, 1.25}, {63, 1.5}, {255, 2}};
  for (const auto& [position, want] : table) EXPECT_NEAR(logn_factor(position, 16), want, 1e-12) << position;
}

// 40 heads (Baichuan-13B): the 32 slopes 2^(-8 (k + 1) / 32), then for 8 more 2^(-4 (2 k + 1) / 32).
TEST(Formulas, AlibiSlopesOf40Heads) {
  const std::vector<float> slopes = alibi_slopes(40);
  ASSERT_EQ(slopes.size(), 40u);
  const std::pair<size_t, double> table[] = {
      {0, 0.8408964152537}, {1, 0.7071067811865}, {7, 0.25}, {31, 0.00390625}, {32, 0.9170040432047},
      {33, 0.771105412704}, {39, 0.2726269331663}};
  for (const auto& [head, want] : table) EXPECT_NEAR(slopes[head], want, 1e-7) << head;
  EXPECT_EQ(alibi_slopes(6), (std::vector<float>{0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f}));
  EXPECT_EQ(alibi_slopes(1), std::vector<float>{0.00390625f});
}

std::string deepseek(const std::string& rest) {
  return R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 32, "intermediate_size": 16,
      "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 11, "kv_lora_rank": 8, "q_lora_rank": null,
      "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "moe_intermediate_size": 8,
      "max_position_embeddings": 163840, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
      "topk_group": 2, )" +
         rest + "}";
}

// (128 + 64)^(-1/2) = 0.0721687836487, times g(40, mscale_all_dim)^2 with g(f, m) = 0.1 m ln f + 1:
// g(40, 0.707) = 1.260803777406, g(40, 1) = 1.368887945411, g(40, 1.3) = 1.479554329035.
// cos and sin get g(40, mscale) / g(40, mscale_all_dim).
TEST(Formulas, DeepseekSoftmaxScaleWithYarn) {
  struct Case {
    const char *mscale, *of_all;
    double attention_factor, scale;
  };
  for (const Case& c : {Case{"0.707", "0.707", 1, 0.1147213867929}, Case{"1.0", "1.0", 1, 0.1352337788609},
                        Case{"0.7", "1.3", 0.8504057857806, 0.1579833139853}}) {
    const DecoderSpec s = spec_of(deepseek(cat(R"("rope_scaling": {"type": "yarn", "factor": 40,
        "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1, "mscale": )",
                                               c.mscale, R"(, "mscale_all_dim": )", c.of_all, "}")));
    EXPECT_NEAR(s.rope.attention_factor, c.attention_factor, 1e-12) << c.of_all;
    EXPECT_NEAR(s.attention_scale, c.scale, 1e-8) << c.of_all;
  }
  const DecoderSpec plain = spec_of(deepseek(R"("rope_scaling": null)"));
  EXPECT_NEAR(plain.attention_scale, 0.0721687836487, 1e-8);
  // Without mscale_all_dim the scale stays, and cos and sin get g(40, 1).
  const DecoderSpec none = spec_of(deepseek(R"("rope_scaling": {"type": "yarn", "factor": 40})"));
  EXPECT_NEAR(none.attention_scale, 0.0721687836487, 1e-8);
  EXPECT_NEAR(none.rope.attention_factor, 1.368887945411, 1e-12);
}

// Layers 5 and 11 of 12 are full: theta 1e6, each frequency divided by 8. The others turn by 10000, unscaled.
TEST(Formulas, Gemma3ScalesFullLayersOnly) {
  const std::string sizes = R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 32,
      "intermediate_size": 16, "num_hidden_layers": 12, "head_dim": 8, "sliding_window": 16, )";
  const std::string old_keys = R"("rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}})";
  const std::string new_keys = R"("rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}})";
  for (const std::string& keys : {old_keys, new_keys}) {
    const DecoderSpec s = spec_of(sizes + keys);
    for (size_t l = 0; l < 12; ++l) {
      EXPECT_EQ(s.layers[l].local_rope, l != 5 && l != 11) << l;
      EXPECT_EQ(s.layers[l].window, l != 5 && l != 11 ? 16 : 0) << l;
    }
    const std::vector<double> full = make_rope_table(s.rope, 20).inv_freq,
                              local = make_rope_table(s.local_rope, 20).inv_freq;
    const double want_full[] = {0.125, 0.00395284707521, 0.000125, 3.95284707521e-06},
                 want_local[] = {1, 0.1, 0.01, 0.001};
    for (size_t j = 0; j < 4; ++j) {
      EXPECT_NEAR(full[j] / want_full[j], 1, 1e-11) << j;
      EXPECT_NEAR(local[j] / want_local[j], 1, 1e-11) << j;
    }
  }
}

// sqrt(2048) = 45.2548, sqrt(3072) = 55.4256, sqrt(3584) = 59.8665; bf16 steps by 0.25 there.
TEST(Formulas, GemmaScalesEmbeddingsByARootOfItsDtype) {
  for (const auto& [hidden, in_bf16] :
       {std::pair(2048, 45.25f), std::pair(3072, 55.5f), std::pair(3584, 59.75f)}) {
    const auto scale = [hidden = hidden](const char* dtype) {
      return spec_of(cat(R"({"architectures": ["GemmaForCausalLM"], "intermediate_size": 16, "vocab_size": 11,
          "num_hidden_layers": 1, "num_attention_heads": 16, "hidden_size": )",
                         hidden, R"(, "torch_dtype": ")", dtype, "\"}"))
          .embedding_scale;
    };
    EXPECT_EQ(scale("bfloat16"), in_bf16);
    EXPECT_EQ(scale("float32"), std::sqrt(static_cast<float>(hidden)));
  }
}

/// Experts and weights that a spec's router chooses, on the reference and on the CPU.
void expect_route(const DecoderSpec& spec, const std::vector<double>& logits,
                  const std::vector<double>& correction, const std::vector<int>& want_ids,
                  const std::vector<double>& want_weights) {
  const auto threads = std::make_shared<ThreadPool>(1);
  const std::unique_ptr<Kernels> backends[] = {make_ref_kernels(threads), make_cpu_kernels(threads)};
  for (const auto& kernels : backends) {
    SCOPED_TRACE(kernels->name());
    const auto count = static_cast<int64_t>(logits.size()), k = static_cast<int64_t>(want_ids.size());
    ASSERT_EQ(spec.experts.num_experts, count);
    ASSERT_EQ(spec.experts.top_k, k);
    Tensor in(kernels->activation_dtype(), {1, count}), correct(DType::kF32, {count}),
        ids(DType::kI32, {1, k}), weights(kernels->activation_dtype(), {1, k});
    for (int64_t e = 0; e < count; ++e) {
      in.view().set(0, e, logits[static_cast<size_t>(e)]);
      if (!correction.empty()) correct.view().set(e, correction[static_cast<size_t>(e)]);
    }
    std::optional<ConstTensorView> given;
    if (!correction.empty()) given = correct;
    kernels->route(ids, weights, in, given, spec.experts.route);
    for (int64_t j = 0; j < k; ++j) {
      EXPECT_EQ(ids.view().at(0, j), want_ids[static_cast<size_t>(j)]) << j;
      EXPECT_NEAR(weights.view().at(0, j), want_weights[static_cast<size_t>(j)], 1e-5) << j;
    }
  }
}

std::vector<double> logits_with_softmax(const std::vector<double>& probabilities) {
  std::vector<double> out;
  for (const double p : probabilities) out.push_back(std::log(p));
  return out;
}

std::vector<double> logits_with_sigmoid(const std::vector<double>& scores) {
  std::vector<double> out;
  for (const double s : scores) out.push_back(std::log(s / (1 - s)));
  return out;
}

std::string deepseek_v2(const std::string& rest) {
  std::string text = deepseek(rest);
  return text.replace(text.find("V3"), 2, "V2");
}

// Groups {0.30, 0.01} {0.05, 0.20} {0.18, 0.02} {0.04, 0.20}: the largest of each are 0.30, 0.20, 0.18, 0.20,
// and of the equal ones the first is kept. Left are experts 0 to 3: 0, 3 and 2, times 16.
TEST(Formulas, GroupLimitedGreedyTakesTheBestGroups) {
  const std::vector<double> logits = logits_with_softmax({0.30, 0.01, 0.05, 0.20, 0.18, 0.02, 0.04, 0.20});
  expect_route(
      spec_of(deepseek_v2(R"("topk_method": "group_limited_greedy", "routed_scaling_factor": 16.0)")), logits,
      {}, {0, 3, 2}, {4.8, 3.2, 0.8});
  expect_route(spec_of(deepseek_v2(R"("topk_method": "greedy", "routed_scaling_factor": 1.0)")), logits, {},
               {0, 3, 7}, {0.30, 0.20, 0.20});
}

// sigmoid + correction: {0.4, 0.1} {0.6, 0.5} {0.65, 0.3} {0.3, 0.7}; the two best of each group sum to
// 0.5, 1.1, 0.95, 1.0: groups 1 and 3, where the best alone would keep groups 2 and 3. Left are 7, 2, 3 with
// scores 0.7, 0.5, 0.5, which sum to 1.7: * 2.5 / 1.7.
TEST(Formulas, NoauxTcChoosesByCorrectedScoresAndWeighsByPlainOnes) {
  const DecoderSpec spec = spec_of(deepseek(R"("topk_method": "noaux_tc")"));
  const std::vector<double> logits = logits_with_sigmoid({0.9, 0.1, 0.5, 0.5, 0.65, 0.25, 0.2, 0.7});
  const std::vector<double> weights = {1.0294117647, 0.7352941176, 0.7352941176};
  std::vector<double> correction = {-0.5, 0, 0.1, 0, 0, 0.05, 0.1, 0};
  expect_route(spec, logits, correction, {7, 2, 3}, weights);
  // All choice scores below zero: what is masked must be lower still.
  for (double& c : correction) c -= 2;
  expect_route(spec, logits, correction, {7, 2, 3}, weights);
}

// Equal scores everywhere: the lowest groups, then the lowest experts.
TEST(Formulas, TiesGoToTheLowerId) {
  expect_route(spec_of(deepseek("\"routed_scaling_factor\": 3.0")), std::vector<double>(8, 0),
               std::vector<double>(8, 0), {0, 1, 2}, {1, 1, 1});
}

}  // namespace
}  // namespace lmdeploy
