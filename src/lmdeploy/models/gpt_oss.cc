// models/gpt_oss.cc -- gpt-oss 20B and 120B.
// Source: config.json and index file of openai/gpt-oss-20b; modeling_gpt_oss.py in transformers 4.55. Gate
// and up rows of an expert alternate. Unquantised exports store experts [in, out].
#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.default_norm_eps = 1e-5,
                                        .default_rope = {.theta = 150000},
                                        .default_kv_heads = 8,
                                        .default_head_dim = 64,
                                        .default_max_positions = 131072,
                                        .default_attention_bias = true});
  s.sinks = true;
  s.clamped_glu = read_factor(cfg, "swiglu_limit", 7);
  if (s.clamped_glu == 0)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"swiglu_limit\" is 0, expected a number above 0"));
  read_windows(cfg, s, /*fallback=*/128, [](int64_t layer) { return layer % 2 == 0; });
  s.experts.num_experts = read_size_or(cfg, "num_local_experts|num_experts", 128);
  s.experts.top_k = read_size_or(cfg, "num_experts_per_tok|experts_per_token", 4);
  s.experts.inner_size = s.intermediate_size;
  s.experts.router_bias = s.experts.bias = true;
  s.experts.route.softmax_of_chosen = true;
  place_experts(s, [](int64_t) { return true; });
  return s;
}

constexpr std::array kOwn = {
    WeightRule{Slot::kSinks, "model.layers.{l}.self_attn.sinks", Dim::kHeads},
    WeightRule{Slot::kRouter, "model.layers.{l}.mlp.router.weight", Dim::kExperts, Dim::kHidden},
    WeightRule{Slot::kRouterBias, "model.layers.{l}.mlp.router.bias", Dim::kExperts},
    WeightRule{Slot::kExpertUpBias, "model.layers.{l}.mlp.experts.gate_up_proj_bias", Dim::kExpertGateUp,
               Dim::kNone, 0, nullptr, Stored::kExpertsPaired},
    WeightRule{Slot::kExpertDownBias, "model.layers.{l}.mlp.experts.down_proj_bias", Dim::kHidden, Dim::kNone,
               0, nullptr, Stored::kExperts},
};
constexpr std::array kExperts = {
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.gate_up_proj", Dim::kExpertGateUp, Dim::kHidden,
               0, nullptr, Stored::kExpertsPairedTransposed},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.mlp.experts.down_proj", Dim::kHidden, Dim::kExpertInner,
               0, nullptr, Stored::kExpertsTransposed},
};
// MXFP4, which keeps rows together (docs/checkpoints.md).
constexpr std::array kRowExperts = {
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.gate_up_proj.weight", Dim::kExpertGateUp,
               Dim::kHidden, 0, nullptr, Stored::kExpertsPaired},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.mlp.experts.down_proj.weight", Dim::kHidden,
               Dim::kExpertInner, 0, nullptr, Stored::kExperts},
};
constexpr auto kMxfp4Rules = join(llama::kEnds, llama::kNorms, llama::kAttention, kOwn, kRowExperts);
constexpr auto kRules = join(llama::kEnds, llama::kNorms, llama::kAttention, kOwn, kExperts);
constexpr WeightTable kWeights[] = {{".mlp.experts.gate_up_proj.weight", kMxfp4Rules}, {"", kRules}};

}  // namespace

const ModelFamily kGptOss = {"GptOssForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
