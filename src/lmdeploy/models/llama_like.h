// What Llama and its many relatives share: the config keys and the tensor names.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/rope.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

class ConfigReader;

/// The names under which a family's config keeps what all have; several are tried in order, separated by "|".
/// And what its own config class says where a key is absent.
struct ConfigKeys {
  std::string_view hidden_size = "hidden_size";
  std::string_view intermediate_size = "intermediate_size";
  std::string_view num_layers = "num_hidden_layers";
  std::string_view num_heads = "num_attention_heads";
  std::string_view num_kv_heads = "num_key_value_heads";
  std::string_view head_dim = "head_dim";
  std::string_view vocab_size = "vocab_size";
  std::string_view norm_eps = "rms_norm_eps";
  std::string_view activation = "hidden_act";
  double default_norm_eps = 1e-6;
  std::string_view default_activation = "silu";
  std::string_view rope_layer_kind = "";  // see read_rope()
  bool rope = true;                       // false: positions come from elsewhere, rope keys are not read
  RopeDefaults default_rope = {};
  int64_t default_heads = 0;     // 0: must be there
  int64_t default_kv_heads = 0;  // 0: as many as heads, which is also what null says
  int64_t default_head_dim = 0;  // 0: hidden size / heads
  int64_t default_vocab = 0;     // 0: must be there
  int64_t default_max_positions = 2048;
  bool default_attention_bias = false;
  bool default_tied = false;
  int64_t inner_per_hidden = 0;  // intermediate size over hidden size where it is absent; 0: must be there
};

/// Sizes, rope, norm eps, biases, activation, tied head, lengths, log-n factors, end ids; layers without
/// windows or experts. Throws Error(kInvalidData | kUnsupported) naming the key; every size returned is
/// positive, and small enough that products of two do not overflow.
DecoderSpec read_llama_like(const ConfigReader& cfg, const ConfigKeys& keys = {});

/// A size that a config keeps under one of `keys` ("a|b"): 1 to `most`, or an Error naming the key. The
/// second one takes a fallback for an absent key.
int64_t read_size(const ConfigReader& cfg, std::string_view keys, int64_t most = 1 << 24);
int64_t read_size_or(const ConfigReader& cfg, std::string_view keys, int64_t fallback,
                     int64_t most = 1 << 24);
/// A finite number of at least 0, under one of `keys`.
float read_factor(const ConfigReader& cfg, std::string_view keys, double fallback);
/// The same for what null switches off: 0.
float read_limit(const ConfigReader& cfg, std::string_view key, double fallback);
/// "silu", "gelu_new", ...; Error(kUnsupported) naming what is known.
Activation activation_from_name(const ConfigReader& cfg, std::string_view key, const std::string& name);

/// Windows of the layers: "layer_types" says which slide; without it those for which `slides` is true, or
/// all. A "sliding_window" that is null, 0 or at least as long as the model is none; absent it is the
/// fallback.
void read_windows(const ConfigReader& cfg, DecoderSpec& spec, int64_t fallback = 0,
                  const std::function<bool(int64_t layer)>& slides = nullptr);
/// The layers that slide by "layer_types" or, without it, by `slides` turn by local_rope.
void mark_local_rope(const ConfigReader& cfg, DecoderSpec& spec,
                     const std::function<bool(int64_t layer)>& slides);
/// A list of integers; empty when absent.
std::vector<int> int_list(const ConfigReader& cfg, std::string_view key);
/// Makes a layer a mixture of experts for which `has_experts` is true.
template <typename Rule>
void place_experts(DecoderSpec& spec, const Rule& has_experts) {
  for (size_t l = 0; l < spec.layers.size(); ++l)
    spec.layers[l].experts = has_experts(static_cast<int64_t>(l));
}

/// Min over the length keys that exist; no rope scaling applied.
int64_t read_max_positions(const ConfigReader& cfg, int64_t fallback = 2048);

/// Names of LlamaForCausalLM, in the parts that relatives change.
namespace llama {

inline constexpr WeightRule kEmbed = {Slot::kEmbed, "model.embed_tokens.weight", Dim::kVocab, Dim::kHidden};
inline constexpr WeightRule kHead = {Slot::kLmHead, "lm_head.weight", Dim::kVocab, Dim::kHidden, 0, untied};
inline constexpr WeightRule kFinalNorm = {Slot::kFinalNorm, "model.norm.weight", Dim::kHidden};
inline constexpr std::array kEnds = {kEmbed, kFinalNorm, kHead};

inline constexpr std::array kNorms = {
    WeightRule{Slot::kAttentionNorm, "model.layers.{l}.input_layernorm.weight", Dim::kHidden},
    WeightRule{Slot::kMlpNorm, "model.layers.{l}.post_attention_layernorm.weight", Dim::kHidden},
};

/// Biases of LayerNorms.
inline constexpr std::array kNormBiases = {
    WeightRule{Slot::kAttentionNormBias, "model.layers.{l}.input_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kMlpNormBias, "model.layers.{l}.post_attention_layernorm.bias", Dim::kHidden},
    WeightRule{Slot::kFinalNormBias, "model.norm.bias", Dim::kHidden},
};

inline constexpr std::array kQkv = {
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.q_proj.weight", Dim::kQ, Dim::kHidden, 0},
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.k_proj.weight", Dim::kKv, Dim::kHidden, 1},
    WeightRule{Slot::kQkv, "model.layers.{l}.self_attn.v_proj.weight", Dim::kKv, Dim::kHidden, 2},
    WeightRule{Slot::kQkvBias, "model.layers.{l}.self_attn.q_proj.bias", Dim::kQ, Dim::kNone, 0,
               with_qkv_bias},
    WeightRule{Slot::kQkvBias, "model.layers.{l}.self_attn.k_proj.bias", Dim::kKv, Dim::kNone, 1,
               with_qkv_bias},
    WeightRule{Slot::kQkvBias, "model.layers.{l}.self_attn.v_proj.bias", Dim::kKv, Dim::kNone, 2,
               with_qkv_bias},
};
inline constexpr std::array kO = {
    WeightRule{Slot::kO, "model.layers.{l}.self_attn.o_proj.weight", Dim::kHidden, Dim::kQ},
    WeightRule{Slot::kOBias, "model.layers.{l}.self_attn.o_proj.bias", Dim::kHidden, Dim::kNone, 0,
               with_o_bias},
};

inline constexpr auto kAttention = join(kQkv, kO);

/// Norms of q and k: one weight for all heads.
inline constexpr std::array kHeadNorms = {
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_norm.weight", Dim::kHeadDim},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_norm.weight", Dim::kHeadDim},
};
/// The same over the whole projection.
inline constexpr std::array kRowNorms = {
    WeightRule{Slot::kQNorm, "model.layers.{l}.self_attn.q_norm.weight", Dim::kQ},
    WeightRule{Slot::kKNorm, "model.layers.{l}.self_attn.k_norm.weight", Dim::kKv},
};

inline constexpr std::array kMlp = {
    WeightRule{Slot::kUp, "model.layers.{l}.mlp.gate_proj.weight", Dim::kInner, Dim::kHidden, 0, dense},
    WeightRule{Slot::kUp, "model.layers.{l}.mlp.up_proj.weight", Dim::kInner, Dim::kHidden, 1, dense},
    WeightRule{Slot::kUpBias, "model.layers.{l}.mlp.gate_proj.bias", Dim::kInner, Dim::kNone, 0,
               dense_with_bias},
    WeightRule{Slot::kUpBias, "model.layers.{l}.mlp.up_proj.bias", Dim::kInner, Dim::kNone, 1,
               dense_with_bias},
    WeightRule{Slot::kDown, "model.layers.{l}.mlp.down_proj.weight", Dim::kHidden, Dim::kInner, 0, dense},
    WeightRule{Slot::kDownBias, "model.layers.{l}.mlp.down_proj.bias", Dim::kHidden, Dim::kNone, 0,
               dense_with_bias},
};

/// gate and up as one tensor, without biases.
inline constexpr std::array kFusedMlp = {
    WeightRule{Slot::kUp, "model.layers.{l}.mlp.gate_up_proj.weight", Dim::kGateUp, Dim::kHidden, 0, dense},
    WeightRule{Slot::kDown, "model.layers.{l}.mlp.down_proj.weight", Dim::kHidden, Dim::kInner, 0, dense},
};

/// The expert layers of Qwen, DeepSeek and OLMoE.
inline constexpr std::array kExperts = {
    WeightRule{Slot::kRouter, "model.layers.{l}.mlp.gate.weight", Dim::kExperts, Dim::kHidden, 0,
               with_experts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.{e}.gate_proj.weight", Dim::kExpertInner,
               Dim::kHidden, 0, with_experts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.{e}.up_proj.weight", Dim::kExpertInner,
               Dim::kHidden, 1, with_experts},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.mlp.experts.{e}.down_proj.weight", Dim::kHidden,
               Dim::kExpertInner, 0, with_experts},
};
/// The same as the newest library writes them: all experts in one tensor.
inline constexpr std::array kFusedExperts = {
    WeightRule{Slot::kRouter, "model.layers.{l}.mlp.gate.weight", Dim::kExperts, Dim::kHidden, 0,
               with_experts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.gate_up_proj", Dim::kExpertGateUp, Dim::kHidden,
               0, with_experts, Stored::kExperts},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.mlp.experts.down_proj", Dim::kHidden, Dim::kExpertInner,
               0, with_experts, Stored::kExperts},
};

/// As GGUF files have them: gate, up and down of all experts.
inline constexpr std::array kStackedExperts = {
    WeightRule{Slot::kRouter, "model.layers.{l}.mlp.gate.weight", Dim::kExperts, Dim::kHidden, 0,
               with_experts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.gate_proj.weight", Dim::kExpertInner,
               Dim::kHidden, 0, with_experts, Stored::kExperts},
    WeightRule{Slot::kExpertUp, "model.layers.{l}.mlp.experts.up_proj.weight", Dim::kExpertInner,
               Dim::kHidden, 1, with_experts, Stored::kExperts},
    WeightRule{Slot::kExpertDown, "model.layers.{l}.mlp.experts.down_proj.weight", Dim::kHidden,
               Dim::kExpertInner, 0, with_experts, Stored::kExperts},
};
inline constexpr std::string_view kStackedMarker = ".mlp.experts.gate_proj.weight";

inline constexpr auto kRules = join(kEnds, kNorms, kAttention, kMlp);

}  // namespace llama

}  // namespace lmdeploy
