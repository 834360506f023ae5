// Facts of ggml-org/llama.cpp, conversion/*.py and gguf-py/gguf/tensor_mapping.py.
#include "gguf_families.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::testing {
namespace {

using Rules = std::vector<GgufTwinRule>;
using Keys = std::vector<GgufTwinKey>;

template <typename List>
List operator+(List a, const List& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// weight and bias of each
Rules with_biases(const Rules& rules) {
  Rules all;
  for (const GgufTwinRule& rule : rules)
    for (const char* suffix : {".weight", ".bias"})
      all.push_back({rule.hub + suffix, rule.stored + suffix, rule.form});
  return all;
}
Rules weights(const Rules& rules) {
  Rules all;
  for (const GgufTwinRule& rule : rules)
    all.push_back({rule.hub + ".weight", rule.stored + ".weight", rule.form});
  return all;
}
Rules in_layers(const std::string& prefix, Rules rules) {
  for (GgufTwinRule& rule : rules) {
    rule.hub = prefix + "{l}." + rule.hub;
    rule.stored = "blk.{l}." + rule.stored;
  }
  return rules;
}
const std::string kLayers = "model.layers.";

Rules ends(Form norm = Form::kAsIs) {
  return {{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm", norm}, {"lm_head", "output"}};
}
Rules norms(Form form = Form::kAsIs) {
  return {{"input_layernorm", "attn_norm", form}, {"post_attention_layernorm", "ffn_norm", form}};
}
Rules attention(Form qk = Form::kAsIs) {
  return {{"self_attn.q_proj", "attn_q", qk},
          {"self_attn.k_proj", "attn_k", qk},
          {"self_attn.v_proj", "attn_v"},
          {"self_attn.o_proj", "attn_output"}};
}
Rules head_norms(Form form = Form::kAsIs) {
  return {{"self_attn.q_norm", "attn_q_norm", form}, {"self_attn.k_norm", "attn_k_norm", form}};
}
Rules mlp() {
  return {{"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};
}
Rules experts() {
  return {{"mlp.gate", "ffn_gate_inp"},
          {"mlp.experts.{e}.gate_proj", "ffn_gate_exps", Form::kStacked},
          {"mlp.experts.{e}.up_proj", "ffn_up_exps", Form::kStacked},
          {"mlp.experts.{e}.down_proj", "ffn_down_exps", Form::kStacked}};
}
Rules shared_experts() {
  return {{"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
          {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
          {"mlp.shared_experts.down_proj", "ffn_down_shexp"}};
}
Rules sandwich_norms(Form form) {
  return {{"input_layernorm", "attn_norm", form},
          {"post_attention_layernorm", "post_attention_norm", form},
          {"pre_feedforward_layernorm", "ffn_norm", form},
          {"post_feedforward_layernorm", "post_ffw_norm", form}};
}
Rules latent_attention() {
  return {{"self_attn.q_proj", "attn_q"},
          {"self_attn.q_a_proj", "attn_q_a"},
          {"self_attn.q_a_layernorm", "attn_q_a_norm"},
          {"self_attn.q_b_proj", "attn_q_b"},
          {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
          {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
          {"self_attn.o_proj", "attn_output"}};
}
Rules split_keys_values() {
  return {{"self_attn.kv_b_proj", "attn_k_b", Form::kKeysOfHeads},
          {"self_attn.kv_b_proj", "attn_v_b", Form::kValuesOfHeads}};
}
Rules correction() { return {{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"}}; }

constexpr GgufType kF32 = GgufType::kF32, kBool = GgufType::kBool;
const GgufTwinKey kTheta = {"rope.freq_base", "rope_theta", kF32};
const GgufTwinKey kRms = {"attention.layer_norm_rms_epsilon", "rms_norm_eps", kF32};

Keys sizes(const std::string& inner = "intermediate_size") {
  return {{"context_length", "max_position_embeddings"},
          {"embedding_length", "hidden_size"},
          {"block_count", "num_hidden_layers"},
          {"feed_forward_length", inner},
          {"attention.head_count", "num_attention_heads"}};
}
Keys grouped(const std::string& inner = "intermediate_size") {
  return sizes(inner) + Keys{{"attention.head_count_kv", "num_key_value_heads"}};
}
Keys with_head_dim() {
  return {{"attention.key_length", "head_dim"}, {"attention.value_length", "head_dim"}};
}
Keys routed(const std::string& count) {
  return {{"expert_count", count}, {"expert_used_count", "num_experts_per_tok"}};
}
GgufItem fixed_int(const std::string& key, int64_t value) { return {key, GgufType::kU32, value}; }

GgufTwinFamily mixtral(const std::string& name, bool stacked) {
  const Form form = stacked ? Form::kStacked : Form::kAsIs;
  const std::string end = stacked ? "_exps" : ".{e}";
  const Rules moe = {{"block_sparse_moe.gate", "ffn_gate_inp"},
                     {"block_sparse_moe.experts.{e}.w1", "ffn_gate" + end, form},
                     {"block_sparse_moe.experts.{e}.w3", "ffn_up" + end, form},
                     {"block_sparse_moe.experts.{e}.w2", "ffn_down" + end, form}};
  return {name,
          "mixtral",
          "llama",
          weights(ends() + in_layers(kLayers, norms() + attention(Form::kInterleaved) + moe)),
          grouped() + routed("num_local_experts") + Keys{kRms, kTheta},
          {fixed_int("rope.dimension_count", 16)}};
}

GgufTwinFamily phi2(const std::string& name, bool fused) {
  const Rules fused_qkv = {{"self_attn.{qkv}_proj", "attn_qkv", Form::kFusedQkv}};
  const Rules qkv = {
      {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"}};
  const Rules rest = {{"input_layernorm", "attn_norm"},
                      {"self_attn.dense", "attn_output"},
                      {"mlp.fc1", "ffn_up"},
                      {"mlp.fc2", "ffn_down"}};
  return {name,
          "phi2",
          "phi2",
          with_biases({{"model.embed_tokens", "token_embd"},
                       {"model.final_layernorm", "output_norm"},
                       {"lm_head", "output"}}) +
              in_layers(kLayers, with_biases((fused ? fused_qkv : qkv) + rest)),
          grouped() + Keys{{"attention.layer_norm_epsilon", "layer_norm_eps", kF32}},
          {fixed_int("rope.dimension_count", 8)}};
}

GgufTwinFamily falcon(const std::string& fixture, int64_t kv_heads) {
  return {fixture,
          fixture,
          "falcon",
          with_biases({{"transformer.word_embeddings", "token_embd"}, {"transformer.ln_f", "output_norm"}}) +
              in_layers("transformer.h.",
                        with_biases({{"input_layernorm", "attn_norm"},
                                     {"ln_mlp", "attn_norm"},
                                     {"ln_attn", "attn_norm_2"},
                                     {"self_attention.query_key_value", "attn_qkv", Form::kUngrouped},
                                     {"self_attention.dense", "attn_output"},
                                     {"mlp.dense_h_to_4h", "ffn_up"},
                                     {"mlp.dense_4h_to_h", "ffn_down"}})),
          sizes("ffn_hidden_size") + Keys{{"attention.layer_norm_epsilon", "layer_norm_epsilon", kF32}},
          {fixed_int("attention.head_count_kv", kv_heads)}};
}

GgufTwinFamily deepseek2(const std::string& name, const std::string& fixture, bool split) {
  const Rules keys_values = split ? split_keys_values() : Rules{{"self_attn.kv_b_proj", "attn_kv_b"}};
  GgufTwinFamily family = {name, fixture, "deepseek2",
                           weights(ends() + in_layers(kLayers, norms() + latent_attention() + keys_values +
                                                                   mlp() + experts() + shared_experts())) +
                               in_layers(kLayers, correction()),
                           sizes() + routed("n_routed_experts") +
                               Keys{kRms,
                                    kTheta,
                                    {"attention.kv_lora_rank", "kv_lora_rank"},
                                    {"attention.q_lora_rank", "q_lora_rank"},
                                    {"rope.dimension_count", "qk_rope_head_dim"},
                                    {"expert_feed_forward_length", "moe_intermediate_size"},
                                    {"expert_shared_count", "n_shared_experts"},
                                    {"leading_dense_block_count", "first_k_dense_replace"},
                                    {"expert_weights_scale", "routed_scaling_factor", kF32},
                                    {"expert_weights_norm", "norm_topk_prob", kBool},
                                    {"expert_group_count", "n_group"},
                                    {"expert_group_used_count", "topk_group"}}};
  const std::string mla = split ? "_mla" : "";
  family.fixed = {fixed_int("attention.key_length" + mla, 24), fixed_int("attention.value_length" + mla, 16)};
  if (split) {
    family.fixed.push_back(fixed_int("attention.head_count_kv", 1));
    family.fixed.push_back(fixed_int("attention.key_length", 40));
    family.fixed.push_back(fixed_int("attention.value_length", 32));
  }
  if (fixture == "deepseek_v3") family.fixed.push_back(fixed_int("expert_gating_func", 2));
  return family;
}

GgufTwinFamily deepseek2_yarn() {
  GgufTwinFamily family = deepseek2("deepseek_v2_yarn", "deepseek_v2_lite", true);
  family.overrides["rope_scaling"] = JsonObject{{"type", "yarn"},
                                                {"factor", 8.0},
                                                {"original_max_position_embeddings", 16},
                                                {"mscale", 0.5},
                                                {"mscale_all_dim", 0.5}};
  family.fixed.push_back({"rope.scaling.type", GgufType::kString, std::string_view("yarn")});
  family.fixed.push_back({"rope.scaling.factor", kF32, 8.0});
  family.fixed.push_back(fixed_int("rope.scaling.original_context_length", 16));
  family.fixed.push_back({"rope.scaling.yarn_log_multiplier", kF32, 0.05});
  return family;
}

GgufTwinFamily gemma(const std::string& fixture, const std::string& architecture, const Rules& layer_norms,
                     const Keys& keys) {
  return {fixture,
          fixture,
          architecture,
          weights(ends(Form::kPlusOne) + in_layers(kLayers, layer_norms + attention() + mlp())),
          grouped() + with_head_dim() + Keys{kRms} + keys,
          {},
          {{"query_pre_attn_scalar", 32}}};
}

GgufTwinFamily plain(const std::string& fixture, const std::string& architecture, const Rules& layer,
                     const Keys& keys) {
  return {fixture, fixture, architecture, with_biases(ends() + in_layers(kLayers, layer)),
          grouped() + Keys{kTheta} + keys};
}

GgufTwinFamily phi3(const std::string& fixture) {
  GgufTwinFamily family =
      plain(fixture, "phi3",
            norms() + Rules{{"self_attn.qkv_proj", "attn_qkv"},
                            {"self_attn.o_proj", "attn_output"},
                            {"mlp.gate_up_proj", "ffn_up"},
                            {"mlp.down_proj", "ffn_down"}},
            {kRms, {"rope.scaling.original_context_length", "original_max_position_embeddings"}});
  family.fixed = {fixed_int("rope.dimension_count", 16), fixed_int("attention.sliding_window", 0)};
  if (fixture == "phi3_longrope")
    family.fixed.push_back(
        {"rope.scaling.attn_factor", kF32, std::sqrt(1 + std::log(128.0 / 16) / std::log(16.0))});
  return family;
}

JsonObject random_config(const char* architecture) {
  return {{"architectures", JsonArray{Json(architecture)}},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 262},
          {"max_position_embeddings", 128},
          {"layer_norm_eps", 1e-5},
          {"rope_theta", 10000.0}};
}

// StableLM 2 12B: a norm of its own for each head.
GgufTwinFamily stablelm_12b() {
  GgufTwinFamily family = {
      "stablelm_2_12b", "", "stablelm",
      with_biases(ends() +
                  in_layers(kLayers, Rules{{"input_layernorm", "attn_norm"}} + attention() + mlp())) +
          in_layers(kLayers, weights({{"self_attn.q_layernorm.norms.{e}", "attn_q_norm", Form::kStacked},
                                      {"self_attn.k_layernorm.norms.{e}", "attn_k_norm", Form::kStacked}})),
      grouped() + Keys{kTheta,
                       {"attention.layer_norm_epsilon", "layer_norm_eps", kF32},
                       {"use_parallel_residual", "use_parallel_residual", kBool}}};
  family.fixed = {fixed_int("rope.dimension_count", 4)};
  family.random = random_config("StableLmForCausalLM");
  family.random["partial_rotary_factor"] = 0.25;
  family.random["use_parallel_residual"] = family.random["qk_layernorm"] = true;
  family.seed = 1;
  return family;
}

// Command R+: the same in one tensor.
GgufTwinFamily command_r_plus() {
  GgufTwinFamily family = {
      "command_r_plus", "", "command-r",
      weights(ends() + in_layers(kLayers, Rules{{"input_layernorm", "attn_norm"}} + attention() + mlp() +
                                              Rules{{"self_attn.q_norm", "attn_q_norm", Form::kByHead},
                                                    {"self_attn.k_norm", "attn_k_norm", Form::kByHead}})),
      grouped() + Keys{kTheta,
                       {"attention.layer_norm_epsilon", "layer_norm_eps", kF32},
                       {"logit_scale", "logit_scale", kF32}}};
  family.random = random_config("CohereForCausalLM");
  family.random["use_qk_norm"] = family.random["tie_word_embeddings"] = true;
  family.random["logit_scale"] = 0.5;
  family.seed = 1;
  return family;
}

std::vector<GgufTwinFamily> make_families() {
  const GgufTwinKey window = {"attention.sliding_window", "sliding_window"};
  const Keys layer_eps = {{"attention.layer_norm_epsilon", "layer_norm_eps", kF32}};
  std::vector<GgufTwinFamily> all = {
      mixtral("mixtral", true),
      mixtral("mixtral_by_expert", false),
      plain("qwen2", "qwen2", norms() + attention() + mlp(), {kRms}),
      plain("qwen3", "qwen3", norms() + attention() + head_norms() + mlp(), Keys{kRms} + with_head_dim()),
      plain("qwen2_moe", "qwen2moe",
            norms() + attention() + experts() +
                Rules{{"mlp.shared_expert_gate", "ffn_gate_inp_shexp", Form::kSqueezed},
                      {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                      {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                      {"mlp.shared_expert.down_proj", "ffn_down_shexp"}},
            routed("num_experts") +
                Keys{kRms,
                     {"expert_feed_forward_length", "moe_intermediate_size"},
                     {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}}),
      plain("qwen3_moe", "qwen3moe", norms() + attention() + head_norms() + experts(),
            routed("num_experts") + with_head_dim() +
                Keys{kRms, {"expert_feed_forward_length", "moe_intermediate_size"}}),
      gemma("gemma", "gemma", norms(Form::kPlusOne), {}),
      gemma("gemma2", "gemma2", sandwich_norms(Form::kPlusOne),
            {window,
             {"attn_logit_softcapping", "attn_logit_softcapping", kF32},
             {"final_logit_softcapping", "final_logit_softcapping", kF32}}),
      gemma("gemma3_text", "gemma3", sandwich_norms(Form::kPlusOne) + head_norms(Form::kPlusOne),
            {window, kTheta}),
      phi2("phi2", false),
      phi2("phi2_fused", true),
      phi3("phi3_mini"),
      phi3("phi3_longrope"),
      plain("starcoder2", "starcoder2",
            norms() + attention() + Rules{{"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"}},
            {{"attention.layer_norm_epsilon", "norm_epsilon", kF32}}),
      falcon("falcon_7b", 1),
      falcon("falcon_40b", 2),
      {"gpt2",
       "gpt2",
       "gpt2",
       with_biases({{"transformer.wte", "token_embd"},
                    {"transformer.wpe", "position_embd"},
                    {"transformer.ln_f", "output_norm"}}) +
           in_layers("transformer.h.", with_biases({{"ln_1", "attn_norm"},
                                                    {"ln_2", "ffn_norm"},
                                                    {"attn.c_attn", "attn_qkv", Form::kTransposed},
                                                    {"attn.c_proj", "attn_output", Form::kTransposed},
                                                    {"mlp.c_fc", "ffn_up", Form::kTransposed},
                                                    {"mlp.c_proj", "ffn_down", Form::kTransposed}})),
       {{"context_length", "n_positions"},
        {"embedding_length", "n_embd"},
        {"block_count", "n_layer"},
        {"attention.head_count", "n_head"},
        {"attention.layer_norm_epsilon", "layer_norm_epsilon", kF32}},
       {fixed_int("feed_forward_length", 256)}},
      {"gpt_neox",
       "gpt_neox",
       "gptneox",
       with_biases({{"gpt_neox.embed_in", "token_embd"},
                    {"gpt_neox.final_layer_norm", "output_norm"},
                    {"embed_out", "output"}}) +
           in_layers("gpt_neox.layers.",
                     with_biases({{"input_layernorm", "attn_norm"},
                                  {"post_attention_layernorm", "ffn_norm"},
                                  {"attention.query_key_value", "attn_qkv", Form::kUngrouped},
                                  {"attention.dense", "attn_output"},
                                  {"mlp.dense_h_to_4h", "ffn_up"},
                                  {"mlp.dense_4h_to_h", "ffn_down"}})),
       sizes() + layer_eps + Keys{{"use_parallel_residual", "use_parallel_residual", kBool}},
       {fixed_int("rope.dimension_count", 4)}},
      plain("olmo2", "olmo2",
            attention() + head_norms() + mlp() +
                Rules{{"post_attention_layernorm", "post_attention_norm"},
                      {"post_feedforward_layernorm", "post_ffw_norm"}},
            {kRms}),
      plain("stablelm", "stablelm", norms() + attention() + mlp(),
            layer_eps + Keys{{"use_parallel_residual", "use_parallel_residual", kBool}}),
      plain("cohere", "command-r", norms() + attention() + mlp(),
            layer_eps + Keys{{"logit_scale", "logit_scale", kF32}}),
      plain("granite", "granite", norms() + attention(Form::kInterleaved) + mlp(),
            {kRms,
             {"attention.scale", "attention_multiplier", kF32},
             {"embedding_scale", "embedding_multiplier", kF32},
             {"residual_scale", "residual_multiplier", kF32},
             {"logit_scale", "logits_scaling", kF32}}),
      plain("deepseek_moe_16b", "deepseek",
            norms() + attention(Form::kInterleaved) + mlp() + experts() + shared_experts(),
            routed("n_routed_experts") + Keys{kRms,
                                              {"expert_feed_forward_length", "moe_intermediate_size"},
                                              {"expert_shared_count", "n_shared_experts"},
                                              {"leading_dense_block_count", "first_k_dense_replace"}}),
      deepseek2("deepseek_v2_lite", "deepseek_v2_lite", true),
      deepseek2("deepseek_v2_whole", "deepseek_v2_lite", false),
      deepseek2("deepseek_v3", "deepseek_v3", true),
      deepseek2_yarn(),
      stablelm_12b(),
      command_r_plus(),
  };
  for (GgufTwinFamily& family : all) {
    if (family.name == "stablelm") family.fixed = {fixed_int("rope.dimension_count", 4)};
    if (family.name == "deepseek_moe_16b") family.fixed = {{"expert_weights_scale", kF32, 1.0}};
  }
  return all;
}

// ---- Tensors, in f32.

struct Values {
  Shape shape;
  std::vector<float> data;
  int64_t cols() const { return shape[shape.rank() - 1]; }
  int64_t rows() const { return static_cast<int64_t>(data.size()) / cols(); }
};

Values read_values(ConstTensorView view) {
  Values values = {view.shape(), {}};
  for (int64_t r = 0; r < view.rows(); ++r)
    for (int64_t c = 0; c < view.cols(); ++c) values.data.push_back(static_cast<float>(view.at(r, c)));
  return values;
}

/// Units of a vector are elements, of a matrix rows.
template <typename Source>
Values reorder(const Values& in, int64_t count, const Source& source) {
  const auto unit = static_cast<size_t>(in.shape.rank() == 1 ? 1 : in.cols());
  Values out = {in.shape, {}};
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = in.data.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(source(i)) * unit);
    out.data.insert(out.data.end(), begin, begin + static_cast<std::ptrdiff_t>(unit));
  }
  return out;
}

Values transposed(const Values& in) {
  if (in.shape.rank() == 1) return in;
  Values out = {{in.cols(), in.rows()}, std::vector<float>(in.data.size())};
  for (int64_t r = 0; r < in.rows(); ++r)
    for (int64_t c = 0; c < in.cols(); ++c)
      out.data[static_cast<size_t>(c * in.rows() + r)] = in.data[static_cast<size_t>(r * in.cols() + c)];
  return out;
}

Values joined(const std::vector<Values>& parts) {
  Values all = {parts[0].shape, {}};
  for (const Values& part : parts) all.data.insert(all.data.end(), part.data.begin(), part.data.end());
  return all;
}

class TwinWriter {
 public:
  TwinWriter(const Checkpoint& hub, const GgufTwinFamily& family, Precision precision)
      : hub_(hub), family_(family), precision_(precision), config_(hub.config().as_object()) {
    for (const auto& [key, value] : family.overrides) config_[key] = value;
  }

  void write(const std::string& path) {
    for (const GgufTwinRule& rule : family_.rules) {
      const bool inside = rule.hub.find("{l}") != std::string::npos;
      for (int64_t l = 0; l < (inside ? layers() : 1); ++l)
        apply({replaced(rule.hub, "{l}", cat(l)), replaced(rule.stored, "{l}", cat(l)), rule.form});
    }
    add_rope_factors("short_factor", "rope_factors_short.weight");
    add_rope_factors("long_factor", "rope_factors_long.weight");
    expect_all_used();
    std::vector<GgufNamedTensor> named;
    for (size_t i = 0; i < names_.size(); ++i) named.push_back({names_[i], tensors_[i]});
    write_gguf(path, metadata(), named);
  }

 private:
  static std::string replaced(std::string text, std::string_view mark, const std::string& with) {
    const size_t at = text.find(mark);
    return at == std::string::npos ? text : text.replace(at, mark.size(), with);
  }
  int64_t number(std::initializer_list<const char*> keys) const {
    for (const char* key : keys)
      if (config_.contains(key) && config_.at(key).is_int64()) return config_.at(key).as_int64();
    return 0;
  }
  int64_t layers() const { return number({"num_hidden_layers", "n_layer"}); }
  int64_t heads() const { return number({"num_attention_heads", "n_head"}); }
  int64_t head_dim() const {
    const int64_t said = number({"head_dim"});
    return said > 0 ? said : number({"hidden_size", "n_embd"}) / heads();
  }

  const Values* find(const std::string& name) {
    for (size_t i = 0; i < hub_.tensors().size(); ++i) {
      if (hub_.tensors()[i].name != name) continue;
      used_.insert(name);
      found_ = read_values(hub_.tensor(i));
      return &found_;
    }
    return nullptr;
  }

  // Tensors that the checkpoint does not have (biases, an output matrix) have no twin.
  void apply(const GgufTwinRule& rule) {
    const bool experts = rule.hub.find("{e}") != std::string::npos;
    if (rule.form == Form::kFusedQkv || rule.form == Form::kStacked) return stack(rule);
    for (int64_t e = 0; e < (experts ? 64 : 1); ++e)
      if (const Values* values = find(replaced(rule.hub, "{e}", cat(e))))
        add(replaced(rule.stored, "{e}", cat(e)), formed(*values, rule.form));
  }

  void stack(const GgufTwinRule& rule) {
    std::vector<Values> parts;
    for (int64_t e = 0; e < 64; ++e) {
      const std::string letter = e < 3 ? std::string(1, "qkv"[e]) : "none";
      const bool qkv = rule.form == Form::kFusedQkv;
      const Values* part =
          find(qkv ? replaced(rule.hub, "{qkv}", letter) : replaced(rule.hub, "{e}", cat(e)));
      if (part != nullptr) parts.push_back(*part);
    }
    if (parts.empty()) return;
    Values all = joined(parts);
    const auto count = static_cast<int64_t>(parts.size());
    if (rule.form == Form::kStacked) {
      all.shape = parts[0].shape.rank() == 1 ? Shape{count, parts[0].cols()}
                                             : Shape{count, parts[0].rows(), parts[0].cols()};
    } else if (parts[0].shape.rank() == 1) {
      all.shape = {static_cast<int64_t>(all.data.size())};
    } else {
      all.shape = {all.rows(), all.cols()};
    }
    add(rule.stored, std::move(all));
  }

  Values formed(const Values& in, Form form) const {
    const int64_t units = in.shape[0], dim = head_dim();
    switch (form) {
      case Form::kInterleaved:
        return reorder(in, units, [&](int64_t i) {
          const int64_t within = i % dim;
          return i - within + within / 2 + (within % 2) * (dim / 2);
        });
      case Form::kUngrouped:
        return ungrouped(in);
      case Form::kTransposed:
        return transposed(in);
      case Form::kSqueezed:
        return {{in.cols()}, in.data};
      case Form::kByHead:
        return {{static_cast<int64_t>(in.data.size()) / dim, dim}, in.data};
      case Form::kKeysOfHeads:
      case Form::kValuesOfHeads:
        return part_of_heads(in, form == Form::kKeysOfHeads);
      case Form::kPlusOne: {
        Values out = in;
        for (float& value : out.data) value += 1;
        return out;
      }
      default:
        return in;
    }
  }

  Values ungrouped(const Values& in) const {
    const int64_t dim = head_dim(), total = in.shape[0] / dim, kv_heads = (total - heads()) / 2;
    const int64_t per_group = heads() / kv_heads;
    std::vector<int64_t> order;  // head of [q | k | v] -> head among the groups
    for (int64_t h = 0; h < heads(); ++h) order.push_back(h / per_group * (per_group + 2) + h % per_group);
    for (const int64_t place : {per_group, per_group + 1})
      for (int64_t g = 0; g < kv_heads; ++g) order.push_back(g * (per_group + 2) + place);
    return reorder(in, in.shape[0],
                   [&](int64_t i) { return order[static_cast<size_t>(i / dim)] * dim + i % dim; });
  }

  Values part_of_heads(const Values& in, bool keys) const {
    const int64_t nope = number({"qk_nope_head_dim"}), value = number({"v_head_dim"});
    const int64_t count = keys ? nope : value, first = keys ? 0 : nope;
    std::vector<Values> parts;
    for (int64_t h = 0; h < heads(); ++h) {
      Values part = reorder(in, count, [&](int64_t i) { return h * (nope + value) + first + i; });
      part.shape = {count, in.cols()};
      parts.push_back(keys ? transposed(part) : part);
    }
    Values all = joined(parts);
    all.shape = {heads(), parts[0].rows(), parts[0].cols()};
    return all;
  }

  void add_rope_factors(const char* key, const std::string& name) {
    const Json* scaling = config_.if_contains("rope_scaling");
    if (scaling == nullptr || !scaling->is_object() || !scaling->as_object().contains(key)) return;
    Values values;
    for (const Json& factor : scaling->at(key).as_array())
      values.data.push_back(static_cast<float>(factor.as_double()));
    values.shape = {static_cast<int64_t>(values.data.size())};
    add(name, std::move(values));
  }

  void add(const std::string& name, const Values& values) {
    const bool blocks = values.shape.rank() > 1 && values.cols() % 32 == 0 && precision_ != Precision::kF32;
    names_.push_back(name);
    Tensor exact(DType::kF32, values.shape);
    std::memcpy(exact.view().data(), values.data.data(), values.data.size() * sizeof(float));
    if (!blocks) {
      tensors_.push_back(std::move(exact));
      return;
    }
    Tensor packed = quantized(values);
    if (precision_ == Precision::kQ8) {
      tensors_.push_back(std::move(packed));
      return;
    }
    for (int64_t r = 0; r < values.rows(); ++r)
      dequantize(DType::kQ8_0, packed.view().row_data(r), exact.view().row<float>(r), values.cols());
    tensors_.push_back(std::move(exact));
  }

  // ggml's block_q8_0: the scale in f16, then 32 int8.
  static Tensor quantized(const Values& values) {
    Tensor packed(DType::kQ8_0, values.shape);
    std::byte* out = packed.view().data();
    for (size_t begin = 0; begin < values.data.size(); begin += 32) {
      float largest = 0;
      for (size_t i = 0; i < 32; ++i) largest = std::max(largest, std::abs(values.data[begin + i]));
      const auto scale = to_f16(largest / 127);
      const float stored = to_float(scale);
      std::memcpy(out, &scale, 2);
      for (size_t i = 0; i < 32; ++i) {
        const float exact = stored == 0 ? 0 : std::round(values.data[begin + i] / stored);
        out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::clamp(exact, -127.0f, 127.0f)));
      }
      out += 34;
    }
    return packed;
  }

  void expect_all_used() const {
    for (const TensorInfo& info : hub_.tensors())
      if (!used_.contains(info.name) && info.name.find(cat(".", layers(), ".")) == std::string::npos)
        throw Error(ErrorCode::kInvalidArgument, cat("no rule for ", info.name));
  }

  static GgufValue stored_value(const Json& value, GgufType type) {
    if (type == kF32) return value.to_number<double>();
    if (type == kBool) return value.as_bool();
    return value.to_number<int64_t>();
  }

  std::vector<GgufItem> metadata() const {
    const auto key_of = [&](const std::string& key) { return cat(family_.architecture, ".", key); };
    std::vector<GgufItem> items = {
        {"general.architecture", GgufType::kString, std::string_view(family_.architecture)}};
    for (const GgufTwinKey& key : family_.keys) {
      const Json* value = config_.if_contains(key.hub);
      if (value == nullptr || value->is_null()) continue;
      items.push_back({key_of(key.stored), key.type, stored_value(*value, key.type)});
    }
    for (GgufItem item : family_.fixed) {
      item.key = key_of(item.key);
      items.push_back(std::move(item));
    }
    return items;
  }

  const Checkpoint& hub_;
  const GgufTwinFamily& family_;
  const Precision precision_;
  JsonObject config_;
  std::set<std::string> used_;
  Values found_;
  std::vector<std::string> names_;
  std::vector<Tensor> tensors_;
};

}  // namespace

const std::vector<GgufTwinFamily>& gguf_twin_families() {
  static const std::vector<GgufTwinFamily> families = make_families();
  return families;
}

void write_gguf_twin(const std::string& path, const Checkpoint& hub, const GgufTwinFamily& family,
                     Precision precision) {
  TwinWriter(hub, family, precision).write(path);
}

}  // namespace lmdeploy::testing
