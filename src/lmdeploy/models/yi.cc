// models/yi.cc -- Yi as first published (01-ai/Yi-6B, -34B, November 2023); later ones say LlamaForCausalLM.
// Source: modeling_yi.py and model.safetensors.index.json beside those weights: Llama with two norms named
// ln1, ln2.
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

constexpr std::array kNorms = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.ln1.weight", Dim::kHidden},
    WeightRule{Slot::kMlpNorm, "model.layers.{l}.ln2.weight", Dim::kHidden},
};
constexpr auto kRules = join(llama::kEnds, kNorms, llama::kAttention, llama::kMlp);
constexpr WeightTable kWeights[] = {{"", kRules}};

DecoderSpec read_spec(const ConfigReader& cfg) {
  return read_llama_like(cfg, {.default_norm_eps = 1e-5,
                               .default_rope = {.theta = 5e6},
                               .default_kv_heads = 4,
                               .default_max_positions = 4096});
}

}  // namespace

const ModelFamily kYi = {"YiForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
