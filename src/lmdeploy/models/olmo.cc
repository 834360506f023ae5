// models/olmo.cc -- OLMo2 and OLMoE.
// Source: config.json and index files of allenai/OLMo-2-1124-7B and OLMoE-1B-7B-0924; modeling_olmo2.py and
// modeling_olmoe.py in transformers 4.51 and 5.0 (fused experts).
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_olmo2(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_norm_eps = 1e-5});
  s.input_norms = false;
  s.output_norms = true;
  s.qk_norm = QkNorm::kWholeRow;
  return s;
}

DecoderSpec read_olmoe(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_norm_eps = 1e-5, .default_max_positions = 4096});
  s.qk_norm = QkNorm::kWholeRow;
  s.qkv_clip = read_factor(cfg, "clip_qkv", 0);
  s.experts.num_experts = read_size_or(cfg, "num_experts|num_local_experts", 64);
  s.experts.top_k = read_size_or(cfg, "num_experts_per_tok", 8);
  s.experts.inner_size = s.intermediate_size;
  s.experts.route.renormalize = cfg.get("norm_topk_prob", false);
  place_experts(s, [](int64_t) { return true; });
  return s;
}

constexpr std::array kOutputNorms = {
    WeightRule{Slot::kAttentionOutNorm, "model.layers.{l}.post_attention_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpOutNorm, "model.layers.{l}.post_feedforward_layernorm.weight", Dim::kHidden},
};
constexpr auto kOlmo2Rules =
    join(llama::kEnds, kOutputNorms, llama::kAttention, llama::kRowNorms, llama::kMlp);
constexpr auto kOlmoeCommon = join(llama::kEnds, llama::kNorms, llama::kAttention, llama::kRowNorms);
constexpr auto kOlmoeRules = join(kOlmoeCommon, llama::kExperts);
constexpr auto kFusedOlmoeRules = join(kOlmoeCommon, llama::kFusedExperts);

constexpr WeightTable kOlmo2Weights[] = {{"", kOlmo2Rules}};
constexpr WeightTable kOlmoeWeights[] = {{".mlp.experts.gate_up_proj", kFusedOlmoeRules}, {"", kOlmoeRules}};

}  // namespace

const ModelFamily kOlmo2 = {"Olmo2ForCausalLM", read_olmo2, kOlmo2Weights, make_decoder};
const ModelFamily kOlmoe = {"OlmoeForCausalLM", read_olmoe, kOlmoeWeights, make_decoder};

}  // namespace lmdeploy
