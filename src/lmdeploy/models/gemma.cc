// models/gemma.cc -- Gemma 1, 2 and 3 (text).
// Source: config.json and index files of google/gemma-7b, gemma-2-9b and gemma-3-1b-it; modeling_gemma.py,
// modeling_gemma2.py and modeling_gemma3.py in transformers 4.51 and 5.0 (rope_parameters by kind of layer).
#include <cmath>
#include <string>

#include "lmdeploy/core/half.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/families.h"
#include "lmdeploy/models/llama_like.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

constexpr int64_t kWindow = 4096;  // where the config has none

// sqrt(hidden_size) as the model's dtype holds it.
float embedding_scale(const ConfigReader& cfg, int64_t hidden_size) {
  const auto scale = static_cast<float>(std::sqrt(static_cast<double>(hidden_size)));
  const std::string dtype = cfg.get("torch_dtype", cfg.get("dtype", "bfloat16").c_str());
  if (dtype == "bfloat16") return to_float(to_bf16(scale));
  return dtype == "float16" ? to_float(to_f16(scale)) : scale;
}

DecoderSpec read_common(const ConfigReader& cfg, ConfigKeys keys) {
  keys.activation = "hidden_activation";
  keys.default_activation = "gelu_pytorch_tanh";
  keys.default_head_dim = 256;
  keys.default_tied = true;
  DecoderSpec s = read_llama_like(cfg, keys);
  s.norm_offset = read_factor(cfg, "norm_weight_offset", 1);  // GGUF files store 1 + w
  s.embedding_scale = embedding_scale(cfg, s.hidden_size);
  return s;
}

DecoderSpec read_gemma(const ConfigReader& cfg) {
  return read_common(cfg, {.default_kv_heads = 16, .default_max_positions = 8192});
}

void read_sandwich(const ConfigReader& cfg, DecoderSpec& s, double attention_cap, double logit_cap) {
  s.output_norms = true;
  const float scalar = read_factor(cfg, "query_pre_attn_scalar", 256);
  s.attention_scale = 1 / std::sqrt(scalar);
  s.attention_soft_cap = read_limit(cfg, "attn_logit_softcapping", attention_cap);
  s.logit_soft_cap = read_limit(cfg, "final_logit_softcapping", logit_cap);
}

DecoderSpec read_gemma2(const ConfigReader& cfg) {
  DecoderSpec s = read_common(cfg, {.default_kv_heads = 4, .default_max_positions = 8192});
  read_sandwich(cfg, s, /*attention_cap=*/50, /*logit_cap=*/30);
  read_windows(cfg, s, kWindow, [](int64_t layer) { return layer % 2 == 0; });
  return s;
}

// Layers with a window turn by frequencies of their own, which are never scaled.
void read_local_rope(const ConfigReader& cfg, DecoderSpec& s) {
  const Json* by_kind =
      cfg.has("rope_parameters") ? cfg.object("rope_parameters").find("sliding_attention") : nullptr;
  if (by_kind != nullptr) {
    s.local_rope = read_rope(cfg, s.head_dim, s.max_positions, "sliding_attention");
  } else {
    s.local_rope.theta = cfg.get("rope_local_base_freq", 10000.0);
    s.local_rope.rotary_dim = s.head_dim;
  }
  s.local_rope.interleaved = s.rope.interleaved;
}

// Configs of the published 4B name sizes only where they differ from the class's.
DecoderSpec read_gemma3(const ConfigReader& cfg) {
  DecoderSpec s = read_common(cfg, {.rope_layer_kind = "full_attention",
                                    .default_rope = {.theta = 1e6},
                                    .default_heads = 8,
                                    .default_kv_heads = 4,
                                    .default_vocab = 262208,
                                    .default_max_positions = 131072});
  read_sandwich(cfg, s, /*attention_cap=*/0, /*logit_cap=*/0);
  s.qk_norm = QkNorm::kPerHead;
  const int64_t pattern = read_size_or(cfg, "sliding_window_pattern|_sliding_window_pattern", 6);
  const auto slides = [&](int64_t layer) { return (layer + 1) % pattern != 0; };
  read_windows(cfg, s, kWindow, slides);
  read_local_rope(cfg, s);
  mark_local_rope(cfg, s, slides);
  return s;
}

constexpr std::array kSandwichNorms = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kAttentionOutNorm, "model.layers.{l}.post_attention_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpNorm, "model.layers.{l}.pre_feedforward_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpOutNorm, "model.layers.{l}.post_feedforward_layernorm.weight", Dim::kHidden},
};
constexpr auto kGemma2Rules = join(llama::kEnds, kSandwichNorms, llama::kAttention, llama::kMlp);
constexpr auto kGemma3Rules = join(kGemma2Rules, llama::kHeadNorms);

constexpr WeightTable kGemmaWeights[] = {{"", llama::kRules}};
constexpr WeightTable kGemma2Weights[] = {{"", kGemma2Rules}};
constexpr WeightTable kGemma3Weights[] = {{"", kGemma3Rules}};

}  // namespace

const ModelFamily kGemma = {"GemmaForCausalLM", read_gemma, kGemmaWeights, make_decoder};
const ModelFamily kGemma2 = {"Gemma2ForCausalLM", read_gemma2, kGemma2Weights, make_decoder};
const ModelFamily kGemma3 = {"Gemma3ForCausalLM", read_gemma3, kGemma3Weights, make_decoder};

}  // namespace lmdeploy
