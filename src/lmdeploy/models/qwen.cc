// models/qwen.cc -- Qwen 1.5, 2, 2.5 and 3, dense and with experts, and Qwen 2.5's reward model.
// Source: config.json and model.safetensors.index.json of Qwen/Qwen2.5-7B-Instruct, Qwen1.5-MoE-A2.7B,
// Qwen3-4B, Qwen3-30B-A3B and Qwen2.5-Math-RM-72B with its modeling_qwen2_rm.py; modeling_qwen2.py,
// modeling_qwen2_moe.py, modeling_qwen3.py and modeling_qwen3_moe.py in transformers 4.51 and 5.0 (fused
// experts).
#include <algorithm>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxPositions = 32768;

// The window is off unless the config asks for it, and then only the later layers have it.
void read_qwen_windows(const ConfigReader& cfg, DecoderSpec& s) {
  if (!cfg.get("use_sliding_window", false)) return;
  const int64_t first = cfg.get("max_window_layers", int64_t{28});
  read_windows(cfg, s, /*fallback=*/4096, [first](int64_t layer) { return layer >= first; });
}

DecoderSpec read_qwen2_like(const ConfigReader& cfg, int64_t default_kv_heads) {
  DecoderSpec s =
      read_llama_like(cfg, {.default_kv_heads = default_kv_heads, .default_max_positions = kMaxPositions});
  s.qkv_bias = cfg.get("qkv_bias", true);
  s.o_bias = false;
  read_qwen_windows(cfg, s);
  return s;
}

DecoderSpec read_qwen2(const ConfigReader& cfg) { return read_qwen2_like(cfg, 32); }

DecoderSpec read_qwen2_reward(const ConfigReader& cfg) {
  DecoderSpec s = read_qwen2(cfg);
  s.gives_score = s.score_mlp = true;
  s.tied_embedding = false;  // the head has one row
  return s;
}

DecoderSpec read_qwen3_like(const ConfigReader& cfg, int64_t default_kv_heads, int64_t default_head_dim) {
  DecoderSpec s = read_llama_like(cfg, {.default_kv_heads = default_kv_heads,
                                        .default_head_dim = default_head_dim,
                                        .default_max_positions = kMaxPositions});
  s.qk_norm = QkNorm::kPerHead;
  read_qwen_windows(cfg, s);
  return s;
}

DecoderSpec read_qwen3(const ConfigReader& cfg) { return read_qwen3_like(cfg, 32, 128); }

// Every `decoder_sparse_step`-th layer has experts, except those listed in `mlp_only_layers`.
void read_experts(const ConfigReader& cfg, DecoderSpec& s, int64_t default_experts, int64_t default_top_k,
                  int64_t default_inner) {
  s.experts.num_experts = read_size_or(cfg, "num_experts|num_local_experts", default_experts);
  s.experts.top_k = read_size_or(cfg, "num_experts_per_tok", default_top_k);
  s.experts.inner_size = read_size_or(cfg, "moe_intermediate_size", default_inner);
  s.experts.route.renormalize = cfg.get("norm_topk_prob", false);
  const int64_t step = read_size_or(cfg, "decoder_sparse_step", 1);
  const std::vector<int> dense_layers = int_list(cfg, "mlp_only_layers");
  place_experts(s, [&](int64_t layer) {
    return (layer + 1) % step == 0 && std::ranges::find(dense_layers, layer) == dense_layers.end();
  });
}

DecoderSpec read_qwen2_moe(const ConfigReader& cfg) {
  DecoderSpec s = read_qwen2_like(cfg, 16);
  read_experts(cfg, s, 60, 4, 1408);
  s.experts.shared_inner_size = read_size_or(cfg, "shared_expert_intermediate_size", 5632);
  s.experts.shared_gate = true;
  return s;
}

DecoderSpec read_qwen3_moe(const ConfigReader& cfg) {
  DecoderSpec s = read_qwen3_like(cfg, 4, /*default_head_dim=*/0);  // its class has no head_dim of its own
  read_experts(cfg, s, 128, 8, 768);
  return s;
}

constexpr std::array kSharedExpert = {
    WeightRule{Slot::kSharedUp, "model.layers.{l}.mlp.shared_expert.gate_proj.weight", Dim::kSharedInner,
               Dim::kHidden, 0, with_shared_expert},
    WeightRule{Slot::kSharedUp, "model.layers.{l}.mlp.shared_expert.up_proj.weight", Dim::kSharedInner,
               Dim::kHidden, 1, with_shared_expert},
    WeightRule{Slot::kSharedDown, "model.layers.{l}.mlp.shared_expert.down_proj.weight", Dim::kHidden,
               Dim::kSharedInner, 0, with_shared_expert},
    WeightRule{Slot::kSharedGate, "model.layers.{l}.mlp.shared_expert_gate.weight", Dim::kOne, Dim::kHidden,
               0, with_shared_expert},
};

constexpr std::array kScoreHead = {
    WeightRule{Slot::kScoreUp, "score.0.weight", Dim::kHidden, Dim::kHidden},
    WeightRule{Slot::kScoreUpBias, "score.0.bias", Dim::kHidden},
    WeightRule{Slot::kLmHead, "score.2.weight", Dim::kOne, Dim::kHidden},
    WeightRule{Slot::kLmHeadBias, "score.2.bias", Dim::kOne},
};

constexpr auto kQwen2RewardRules = join(std::array{llama::kEmbed, llama::kFinalNorm}, llama::kNorms,
                                        llama::kAttention, llama::kMlp, kScoreHead);
constexpr auto kQwen3Rules =
    join(llama::kEnds, llama::kNorms, llama::kAttention, llama::kHeadNorms, llama::kMlp);
constexpr auto kQwen2MoeRules = join(llama::kRules, llama::kExperts, kSharedExpert);
constexpr auto kQwen2MoeFusedRules = join(llama::kRules, llama::kFusedExperts, kSharedExpert);
constexpr auto kQwen2MoeStackedRules = join(llama::kRules, llama::kStackedExperts, kSharedExpert);
constexpr auto kQwen3MoeRules = join(kQwen3Rules, llama::kExperts);
constexpr auto kQwen3MoeFusedRules = join(kQwen3Rules, llama::kFusedExperts);
constexpr auto kQwen3MoeStackedRules = join(kQwen3Rules, llama::kStackedExperts);

constexpr WeightTable kQwen2Weights[] = {{"", llama::kRules}};
constexpr WeightTable kQwen2RewardWeights[] = {{"", kQwen2RewardRules}};
constexpr WeightTable kQwen3Weights[] = {{"", kQwen3Rules}};
constexpr WeightTable kQwen2MoeWeights[] = {{".mlp.experts.gate_up_proj", kQwen2MoeFusedRules},
                                            {llama::kStackedMarker, kQwen2MoeStackedRules},
                                            {"", kQwen2MoeRules}};
constexpr WeightTable kQwen3MoeWeights[] = {{".mlp.experts.gate_up_proj", kQwen3MoeFusedRules},
                                            {llama::kStackedMarker, kQwen3MoeStackedRules},
                                            {"", kQwen3MoeRules}};

}  // namespace

const ModelFamily kQwen2 = {"Qwen2ForCausalLM", read_qwen2, kQwen2Weights, make_decoder};
const ModelFamily kQwen2Moe = {"Qwen2MoeForCausalLM", read_qwen2_moe, kQwen2MoeWeights, make_decoder};
const ModelFamily kQwen2Reward = {"Qwen2ForRewardModel", read_qwen2_reward, kQwen2RewardWeights,
                                  make_decoder};
const ModelFamily kQwen3 = {"Qwen3ForCausalLM", read_qwen3, kQwen3Weights, make_decoder};
const ModelFamily kQwen3Moe = {"Qwen3MoeForCausalLM", read_qwen3_moe, kQwen3MoeWeights, make_decoder};

}  // namespace lmdeploy
