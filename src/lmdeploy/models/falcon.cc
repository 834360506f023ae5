// models/falcon.cc -- Falcon 7B, 11B, 40B, 180B and the RefinedWeb models (falcon-rw).
// Source: modeling_falcon.py in transformers 4.51; config.json of tiiuae/falcon-7b, falcon-11B, falcon-40b
// and falcon-rw-1b. Rows of query_key_value are grouped by kv head in all of them (7B: one group).
#include <array>
#include <string>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"

namespace lmdeploy {
namespace {

// The original code and transformers 4 add ALiBi once; transformers 5 has it in its attention mask and adds
// it again. Configs of the published models name the 4 that wrote them.
float alibi_factor(const ConfigReader& cfg) {
  const std::string version = cfg.get("transformers_version", "5");
  return version.starts_with("4.") ? 1.0f : 2.0f;
}

// The 40B was first published with code of its own, where the layout needed no key; only its config counts
// kv heads as "n_head_kv".
bool is_first_40b(const ConfigReader& cfg) { return cfg.has("n_head_kv") && !cfg.has("multi_query"); }

DecoderSpec read_spec(const ConfigReader& cfg) {
  const bool grouped = cfg.get("new_decoder_architecture", is_first_40b(cfg));
  const bool one_kv_head = !grouped && cfg.get("multi_query", true);
  const bool alibi = cfg.get("alibi", false);
  DecoderSpec s = read_llama_like(cfg, {.intermediate_size = "ffn_hidden_size|intermediate_size",
                                        .num_layers = "num_hidden_layers|n_layer",
                                        .num_heads = "num_attention_heads|n_head",
                                        .num_kv_heads = one_kv_head ? "" : "num_kv_heads|n_head_kv",
                                        .norm_eps = "layer_norm_epsilon",
                                        .activation = "activation",
                                        .default_norm_eps = 1e-5,
                                        .default_activation = "gelu",
                                        .rope = !alibi,
                                        .default_tied = true,
                                        .inner_per_hidden = 4});
  if (one_kv_head) s.num_kv_heads = 1;
  s.norm = NormKind::kLayer;
  s.norm_bias = true;
  s.gated = false;
  s.qkv_bias = s.o_bias = s.mlp_bias = cfg.get("bias", false);
  s.parallel = grouped || cfg.get("parallel_attn", true);
  s.one_norm = s.parallel && (!grouped || cfg.get("num_ln_in_parallel_attn", int64_t{2}) == 1);
  if (alibi) {
    s.alibi = Alibi::kInBf16;
    s.alibi_factor = alibi_factor(cfg);
  }
  return s;
}

bool with_input_norm(const DecoderSpec& s, const LayerSpec&) { return !s.parallel || s.one_norm; }
bool with_second_norm(const DecoderSpec& s, const LayerSpec&) { return !s.parallel; }
bool with_two_norms(const DecoderSpec& s, const LayerSpec&) { return s.parallel && !s.one_norm; }

constexpr std::array kOwn = {
    WeightRule{Slot::kEmbed, "transformer.word_embeddings.weight", Dim::kVocab, Dim::kHidden},
    WeightRule{Slot::kAttentionNorm, "transformer.h.{l}.ln_attn.weight", Dim::kHidden, Dim::kNone, 0,
               with_two_norms},
    WeightRule{Slot::kAttentionNormBias, "transformer.h.{l}.ln_attn.bias", Dim::kHidden, Dim::kNone, 0,
               with_two_norms},
    WeightRule{Slot::kMlpNorm, "transformer.h.{l}.ln_mlp.weight", Dim::kHidden, Dim::kNone, 0,
               with_two_norms},
    WeightRule{Slot::kMlpNormBias, "transformer.h.{l}.ln_mlp.bias", Dim::kHidden, Dim::kNone, 0,
               with_two_norms},
    WeightRule{Slot::kO, "transformer.h.{l}.self_attention.dense.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "transformer.h.{l}.self_attention.dense.bias", Dim::kHidden, Dim::kNone, 0,
               with_o_bias},
    WeightRule{Slot::kUp, "transformer.h.{l}.mlp.dense_h_to_4h.weight", Dim::kInner, Dim::kHidden},
    WeightRule{Slot::kUpBias, "transformer.h.{l}.mlp.dense_h_to_4h.bias", Dim::kInner, Dim::kNone, 0,
               dense_with_bias},
    WeightRule{Slot::kDown, "transformer.h.{l}.mlp.dense_4h_to_h.weight", Dim::kHidden, Dim::kInner},
    WeightRule{Slot::kDownBias, "transformer.h.{l}.mlp.dense_4h_to_h.bias", Dim::kHidden, Dim::kNone, 0,
               dense_with_bias},
    WeightRule{Slot::kFinalNorm, "transformer.ln_f.weight", Dim::kHidden},
    WeightRule{Slot::kFinalNormBias, "transformer.ln_f.bias", Dim::kHidden},
    WeightRule{Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, untied},
};
constexpr std::array kNorms = {
    WeightRule{Slot::kAttentionNorm, "transformer.h.{l}.input_layernorm.weight", Dim::kHidden, Dim::kNone, 0,
               with_input_norm},
    WeightRule{Slot::kAttentionNormBias, "transformer.h.{l}.input_layernorm.bias", Dim::kHidden, Dim::kNone,
               0, with_input_norm},
};
constexpr std::array kSecondNorm = {
    WeightRule{Slot::kMlpNorm, "transformer.h.{l}.post_attention_layernorm.weight", Dim::kHidden, Dim::kNone,
               0, with_second_norm},
    WeightRule{Slot::kMlpNormBias, "transformer.h.{l}.post_attention_layernorm.bias", Dim::kHidden,
               Dim::kNone, 0, with_second_norm},
};
constexpr std::array kQkv = {
    WeightRule{Slot::kQkv, "transformer.h.{l}.self_attention.query_key_value.weight", Dim::kQkv, Dim::kHidden,
               0, nullptr, Stored::kGroupedQkv},
    WeightRule{Slot::kQkvBias, "transformer.h.{l}.self_attention.query_key_value.bias", Dim::kQkv, Dim::kNone,
               0, with_qkv_bias, Stored::kGroupedQkv},
};
// GGUF: rows of q, then of k, then of v; a single norm has the name that the MLP's has beside another.
constexpr std::array kGgufOwn = {
    WeightRule{Slot::kAttentionNorm, "transformer.h.{l}.ln_mlp.weight", Dim::kHidden, Dim::kNone, 0,
               with_input_norm},
    WeightRule{Slot::kAttentionNormBias, "transformer.h.{l}.ln_mlp.bias", Dim::kHidden, Dim::kNone, 0,
               with_input_norm},
    WeightRule{Slot::kQkv, "transformer.h.{l}.self_attention.qkv_proj.weight", Dim::kQkv, Dim::kHidden},
    WeightRule{Slot::kQkvBias, "transformer.h.{l}.self_attention.qkv_proj.bias", Dim::kQkv, Dim::kNone, 0,
               with_qkv_bias},
};
constexpr auto kRules = join(kOwn, kNorms, kSecondNorm, kQkv);
constexpr auto kGgufRules = join(kOwn, kGgufOwn, kSecondNorm);
constexpr WeightTable kWeights[] = {{".self_attention.qkv_proj.weight", kGgufRules}, {"", kRules}};

}  // namespace

const ModelFamily kFalcon = {"FalconForCausalLM", read_spec, kWeights, make_decoder};
const ModelFamily kFalconOldSpelling = {"RWForCausalLM", read_spec, kWeights, make_decoder};

}  // namespace lmdeploy
