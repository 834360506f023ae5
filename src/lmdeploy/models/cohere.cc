// models/cohere.cc -- Command R and R+.
// Source: config.json and index file of CohereForAI/c4ai-command-r-v01; modeling_cohere.py in
// transformers 4.51.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.norm_eps = "layer_norm_eps",
                                        .default_norm_eps = 1e-5,
                                        .default_max_positions = 8192,
                                        .default_tied = true});
  s.norm = NormKind::kLayer;
  s.parallel = s.one_norm = true;
  s.rope.interleaved = cfg.get("rope_interleaved", true);
  s.logit_scale = read_factor(cfg, "logit_scale", 0.0625);
  if (cfg.get("use_qk_norm", false)) s.qk_norm = QkNorm::kPerHeadOwn;
  return s;
}

constexpr std::array kOwn = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_norm.weight", Dim::kQ, Dim::kNone, 0, with_qk_norm,
               Stored::kFlat},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_norm.weight", Dim::kKv, Dim::kNone, 0,
               with_qk_norm, Stored::kFlat},
};
constexpr auto kRules = join(llama::kEnds, kOwn, llama::kAttention, llama::kMlp);
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kCohere = {"CohereForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
