// models/mistral.cc -- Mistral 7B, Mistral-Nemo, Ministral; Mixtral 8x7B and 8x22B.
// Source: config.json and model.safetensors.index.json of mistralai/Mistral-7B-v0.1,
// Mistral-Nemo-Instruct-2407 and Mixtral-8x7B-v0.1; modeling_mistral.py and modeling_mixtral.py in
// transformers 4.51 and 5.0 (fused experts).
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxPositions = 4096 * 32;

DecoderSpec read_mistral(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_kv_heads = 8, .default_max_positions = kMaxPositions});
  read_windows(cfg, s, /*fallback=*/4096);
  return s;
}

DecoderSpec read_mixtral(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_norm_eps = 1e-5,
                                        .default_rope = {.theta = 1e6},
                                        .default_kv_heads = 8,
                                        .default_max_positions = kMaxPositions});
  read_windows(cfg, s);
  s.experts.num_experts = read_size_or(cfg, "num_local_experts|num_experts", 8);
  s.experts.top_k = read_size_or(cfg, "num_experts_per_tok", 2);
  s.experts.inner_size = s.intermediate_size;
  s.experts.route.renormalize = true;
  place_experts(s, [](int64_t) { return true; });
  return s;
}

constexpr std::array kExperts = {
    WeightRule{Slot::kRouter, "model.layers.{l}.block_sparse_moe.gate.weight", Dim::kExperts, Dim::kHidden},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w1.weight", Dim::kExpertInner,
               Dim::kHidden, 0},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.block_sparse_moe.experts.{e}.w3.weight", Dim::kExpertInner,
               Dim::kHidden, 1},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.block_sparse_moe.experts.{e}.w2.weight", Dim::kHidden,
               Dim::kExpertInner},
};
// GGUF: the same, all experts in one tensor.
constexpr std::array kStackedExperts = {
    kExperts[0],
    WeightRule{Slot::kExpertUp, "model.layers.{l}.block_sparse_moe.experts.w1.weight", Dim::kExpertInner,
               Dim::kHidden, 0, nullptr, Stored::kExperts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.block_sparse_moe.experts.w3.weight", Dim::kExpertInner,
               Dim::kHidden, 1, nullptr, Stored::kExperts},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.block_sparse_moe.experts.w2.weight", Dim::kHidden,
               Dim::kExpertInner, 0, nullptr, Stored::kExperts},
};
constexpr auto kMixtralRules = join(llama::kEnds, llama::kNorms, llama::kAttention, kExperts);
constexpr auto kFusedMixtralRules =
    join(llama::kEnds, llama::kNorms, llama::kAttention, llama::kFusedExperts);

constexpr auto kStackedMixtralRules = join(llama::kEnds, llama::kNorms, llama::kAttention, kStackedExperts);

constexpr WeightTable kMistralWeights[] = {{"", llama::kRules}};
constexpr WeightTable kMixtralWeights[] = {{".mlp.experts.gate_up_proj", kFusedMixtralRules},
                                           {".block_sparse_moe.experts.w1.weight", kStackedMixtralRules},
                                           {"", kMixtralRules}};

}  // namespace

const ModelFamily kMistral = {"MistralForCausalLM", read_mistral, kMistralWeights, make_decoder};
const ModelFamily kMixtral = {"MixtralForCausalLM", read_mixtral, kMixtralWeights, make_decoder};

}  // namespace lmdeploy
