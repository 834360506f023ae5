// models/starcoder2.cc -- StarCoder2 3B, 7B, 15B.
// Source: config.json and index file of bigcode/starcoder2-3b; modeling_starcoder2.py in transformers 4.51.
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

DecoderSpec read_spec(const ConfigReader& cfg) {
  DecoderSpec s = read_llama_like(cfg, {.norm_eps = "norm_epsilon",
                                        .default_norm_eps = 1e-5,
                                        .default_activation = "gelu_pytorch_tanh",
                                        .default_kv_heads = 2,
                                        .default_max_positions = 4096,
                                        .default_tied = true});
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.gated = false;
  s.qkv_bias = s.o_bias = s.mlp_bias = cfg.get("use_bias", true);
  read_windows(cfg, s);
  return s;
}

constexpr std::array kMlp = {
    WeightRule{Slot::kUp, "model.layers.{l}.mlp.c_fc.weight", Dim::kInner, Dim::kHidden},
    WeightRule{Slot::kUpBias, "model.layers.{l}.mlp.c_fc.bias", Dim::kInner, Dim::kNone, 0, dense_with_bias},
    WeightRule{Slot::kDown, "model.layers.{l}.mlp.c_proj.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kDownBias, "model.layers.{l}.mlp.c_proj.bias", Dim::kHidden, Dim::kNone, 0,
               dense_with_bias},
};
constexpr auto kRules = join(llama::kEnds, llama::kNorms, llama::kNormBiases, llama::kAttention, kMlp);
constexpr WeightTable kWeights[] = {{"", kRules}};

}  // namespace

const ModelFamily kStarcoder2 = {"Starcoder2ForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
