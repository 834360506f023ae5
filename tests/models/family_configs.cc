// One function for each kind of config, and the table of architectures that have it.
#include "family_configs.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

constexpr int64_t kMaxPositions = 128;
constexpr int64_t kTrained = 16;  // prompts are longer: rules that depend on the length show

struct Sizes {
  int64_t layers, hidden, inner, heads, kv_heads, head_dim, vocab;
};

/// What a family's sizes must keep to.
struct SizeRules {
  int64_t dim_step = 2;      // head_dim is a multiple of this
  bool own_head_dim = true;  // a key of its own; else hidden size is heads * head_dim
  bool grouped = true;       // fewer kv heads than heads
};

class Config {
 public:
  Config(Draw& choices, int64_t layers) : draw(choices), layers_(layers) {}

  Draw& draw;
  JsonObject json;
  Sizes sizes{};

  void draw_sizes(const SizeRules& rules) {
    const bool deep = layers_ > 3, wide = !deep && draw.between(0, 2) == 0;
    sizes.layers = layers_ > 0 ? layers_ : draw.between(1, 3);
    sizes.head_dim = wide ? draw.any<int64_t>({80, 96, 112, 256}) : rules.dim_step * draw.between(2, 5);
    if (rules.dim_step == 1 && wide) sizes.head_dim = draw.any<int64_t>({81, 95, 113});
    sizes.kv_heads = draw.between(1, wide ? 2 : 3);
    sizes.heads = sizes.kv_heads * (rules.grouped ? draw.between(1, wide ? 2 : 5) : 1);
    if (!rules.grouped && !wide) sizes.heads = sizes.kv_heads = draw.any<int64_t>({1, 3, 5, 6, 7});
    constexpr int64_t kLeastHidden = 8;  // a norm of two elements leaves their order: rounding decides it
    while (!rules.own_head_dim && sizes.heads * sizes.head_dim < kLeastHidden) sizes.head_dim *= 2;
    sizes.hidden = rules.own_head_dim ? draw.between(17, 75) : sizes.heads * sizes.head_dim;
    sizes.inner = draw.between(19, 90);
    sizes.vocab = draw.between(13, 211);
  }

  void set(const char* key, Json value) { json[key] = std::move(value); }
  void flag(const char* key) { json[key] = draw.coin(); }

  /// The keys of Llama, in its spelling.
  void llama(const SizeRules& rules = {}) {
    draw_sizes(rules);
    set("hidden_size", sizes.hidden);
    set("intermediate_size", sizes.inner);
    set("num_hidden_layers", sizes.layers);
    set("num_attention_heads", sizes.heads);
    set("num_key_value_heads", sizes.kv_heads);
    if (rules.own_head_dim) set("head_dim", sizes.head_dim);
    set("vocab_size", sizes.vocab);
    set("max_position_embeddings", kMaxPositions);
    set("rms_norm_eps", draw.any({1e-5, 1e-6, 1e-3}));
    set("rope_theta", draw.any({500.0, 10000.0, 1e6}));
    flag("tie_word_embeddings");
  }

  /// A rope kind, in one of its spellings.
  void rope(int64_t rotary_dim) {
    JsonObject o;
    const char* kind = draw.any({"default", "linear", "dynamic", "yarn", "llama3", "longrope"});
    if (std::string(kind) == "dynamic" && rotary_dim <= 2) kind = "default";
    o[draw.coin() ? "type" : "rope_type"] = kind;
    if (kind == std::string("longrope")) {
      o["short_factor"] = factors(rotary_dim / 2);
      o["long_factor"] = factors(rotary_dim / 2);
    } else {
      o["factor"] = draw.real(1.5, 8);
    }
    if (kind == std::string("llama3")) {
      o["low_freq_factor"] = 1.0;
      o["high_freq_factor"] = 4.0;
    }
    if (kind == std::string("dynamic"))
      set("max_position_embeddings", kTrained);
    else
      o["original_max_position_embeddings"] = kTrained;
    set(draw.coin() ? "rope_scaling" : "rope_parameters", o);
    if (json.contains("rope_parameters")) {
      json["rope_parameters"].as_object()["rope_theta"] = json["rope_theta"];
      json.erase("rope_theta");
    }
  }

  void window() { set("sliding_window", draw.any<int64_t>({1, 3, 8, 11})); }

  void experts(const char* count, const char* top_k) {
    const int64_t num_experts = draw.between(3, 7);
    set(count, num_experts);
    set(top_k, draw.between(1, 3));
  }

 private:
  JsonArray factors(int64_t count) {
    JsonArray out;
    for (int64_t i = 0; i < count; ++i) out.push_back(draw.real(1, 6));
    return out;
  }

  int64_t layers_;
};

void llama(Config& c) {
  c.llama();
  c.rope(c.sizes.head_dim);
  c.flag("attention_bias");
  c.flag("mlp_bias");
  c.set("hidden_act", c.draw.any({"silu", "gelu", "gelu_new", "relu", "quick_gelu"}));
  if (c.draw.coin()) c.window();
}

void yi(Config& c) { c.llama(); }

void mistral(Config& c) {
  c.llama();
  c.window();
}

void mixtral(Config& c) {
  mistral(c);
  c.experts("num_local_experts", "num_experts_per_tok");
}

void qwen2(Config& c) {
  c.llama({.own_head_dim = false});
  c.rope(c.sizes.head_dim);
  c.window();
  c.flag("use_sliding_window");
  c.set("max_window_layers", c.draw.between(0, c.sizes.layers));
}

void qwen3(Config& c) {
  c.llama();
  c.rope(c.sizes.head_dim);
  c.flag("attention_bias");
}

void qwen_experts(Config& c) {
  c.experts("num_experts", "num_experts_per_tok");
  c.set("moe_intermediate_size", c.draw.between(11, 50));
  c.flag("norm_topk_prob");
  c.set("decoder_sparse_step", c.draw.between(1, 2));
  if (c.draw.coin()) c.set("mlp_only_layers", JsonArray{0});
}

void qwen2_moe(Config& c) {
  qwen2(c);
  qwen_experts(c);
  c.set("shared_expert_intermediate_size", c.draw.between(11, 50));
}

void qwen3_moe(Config& c) {
  qwen3(c);
  qwen_experts(c);
}

void qwen_v1(Config& c) {
  c.llama({.grouped = false});
  c.json.erase("head_dim");
  c.json.erase("num_key_value_heads");
  c.set("kv_channels", c.sizes.head_dim);
  c.set("intermediate_size", 2 * c.sizes.inner);
  c.set("layer_norm_epsilon", 1e-6);
  c.set("seq_length", kTrained);
  c.flag("use_dynamic_ntk");
  c.flag("use_logn_attn");
}

void internlm(Config& c) {
  c.llama({.own_head_dim = false, .grouped = false});
  c.flag("bias");
  c.set("max_position_embeddings", kTrained);
  if (c.draw.coin()) c.set("rotary", JsonObject{{"base", 9000}, {"type", c.draw.any({"origin", "dynamic"})}});
}

void internlm2(Config& c) {
  c.llama({.own_head_dim = false});
  c.rope(c.sizes.head_dim);
  c.flag("bias");
}

void internlm3(Config& c) {
  c.llama();
  c.rope(c.sizes.head_dim);
  c.flag("bias");
  c.flag("qkv_bias");
}

void baichuan(Config& c) {
  const bool alibi = c.draw.coin();
  c.llama({.dim_step = alibi ? 1 : 2, .own_head_dim = false, .grouped = false});
  if (alibi) {
    c.json.erase("max_position_embeddings");
    c.json.erase("rope_theta");
    c.set("model_max_length", kMaxPositions);
  }
  if (c.draw.coin()) c.set("z_loss_weight", 0);
}

void chatglm(Config& c) {
  c.draw_sizes({.dim_step = 4, .own_head_dim = true});
  c.set("hidden_size", c.sizes.hidden);
  c.set("ffn_hidden_size", c.sizes.inner);
  c.set("num_layers", c.sizes.layers);
  c.set("num_attention_heads", c.sizes.heads);
  c.set("kv_channels", c.sizes.head_dim);
  c.flag("multi_query_attention");
  c.set("multi_query_group_num", c.sizes.kv_heads);
  c.set("padded_vocab_size", c.sizes.vocab);
  c.set("layernorm_epsilon", 1e-5);
  c.flag("add_qkv_bias");
  c.flag("add_bias_linear");
  c.set("seq_length", kMaxPositions);
  c.set("rope_ratio", c.draw.any({1.0, 50.0}));
}

void glm(Config& c) {
  c.llama({.dim_step = 4});
  c.flag("attention_bias");
}

void falcon(Config& c) {
  const bool grouped = c.draw.coin(), one = !grouped && c.draw.coin(), per_head = !grouped && !one;
  const bool alibi = per_head && c.draw.coin();
  c.draw_sizes({.dim_step = alibi ? 1 : 2, .own_head_dim = false, .grouped = grouped || one});
  c.set("hidden_size", c.sizes.hidden);
  c.set("num_hidden_layers", c.sizes.layers);
  c.set("num_attention_heads", c.sizes.heads);
  c.set("vocab_size", c.sizes.vocab);
  c.set("new_decoder_architecture", grouped);
  if (grouped) c.set("num_kv_heads", c.sizes.kv_heads);
  if (grouped) c.set("num_ln_in_parallel_attn", c.draw.between(1, 2));
  c.set("multi_query", one);
  c.set("parallel_attn", !per_head || c.draw.coin());
  c.set("alibi", alibi);
  c.flag("bias");
  c.flag("tie_word_embeddings");
  if (c.draw.coin()) c.set("ffn_hidden_size", c.sizes.inner);
  c.set("max_position_embeddings", kMaxPositions);
}

void gemma(Config& c) {
  c.llama();
  c.flag("attention_bias");
}

void gemma2(Config& c) {
  gemma(c);
  c.window();
  c.set("query_pre_attn_scalar", c.draw.between(5, 40));
  c.set("attn_logit_softcapping", c.draw.coin() ? Json(c.draw.real(2, 50)) : Json(nullptr));
  c.set("final_logit_softcapping", c.draw.coin() ? Json(c.draw.real(2, 30)) : Json(nullptr));
}

void gemma3(Config& c) {
  gemma2(c);
  c.set("rope_local_base_freq", c.draw.any({100.0, 10000.0}));
  c.set("sliding_window_pattern", c.draw.between(2, 6));
  if (c.draw.coin()) c.set("rope_scaling", JsonObject{{"rope_type", "linear"}, {"factor", 8.0}});
}

void dbrx(Config& c) {
  c.draw_sizes({.own_head_dim = false});
  c.set("d_model", c.sizes.hidden);
  c.set("n_layers", c.sizes.layers);
  c.set("n_heads", c.sizes.heads);
  c.set("vocab_size", c.sizes.vocab);
  c.set("max_seq_len", kMaxPositions);
  JsonObject attention = {{"kv_n_heads", c.sizes.kv_heads}, {"rope_theta", 5e5}};
  if (c.draw.coin()) attention["clip_qkv"] = c.draw.real(0.3, 3);
  c.set("attn_config", attention);
  JsonObject ffn = {{"ffn_hidden_size", c.sizes.inner},
                    {"moe_num_experts", c.draw.between(3, 6)},
                    {"moe_top_k", c.draw.between(1, 3)},
                    {"ffn_act_fn", JsonObject{{"name", "silu"}}}};
  ffn["moe_normalize_expert_weights"] = c.draw.any({Json(1.0), Json(2.0), Json(nullptr)});
  c.set("ffn_config", ffn);
}

void starcoder2(Config& c) {
  c.llama({.own_head_dim = false});
  c.window();
  c.flag("use_bias");
  c.set("norm_epsilon", 1e-5);
}

void phi(Config& c) {
  c.llama({.dim_step = 4, .own_head_dim = false});
  c.set("partial_rotary_factor", 0.5);
  c.set("layer_norm_eps", 1e-5);
  c.flag("qk_layernorm");
  c.set("tie_word_embeddings", false);
}

void phi3(Config& c) {
  c.llama({.dim_step = 4, .own_head_dim = false});
  if (c.draw.coin()) c.window();
  const bool partial = c.draw.coin();
  if (partial) c.set("partial_rotary_factor", 0.5);
  c.rope(partial ? c.sizes.head_dim / 2 : c.sizes.head_dim);
}

void stablelm(Config& c) {
  c.llama({.dim_step = 8, .own_head_dim = false});
  c.set("partial_rotary_factor", 0.25);
  c.set("layer_norm_eps", 1e-5);
  c.flag("use_qkv_bias");
  c.flag("qk_layernorm");
  c.flag("use_parallel_residual");
}

void deepseek_experts(Config& c) {
  c.set("n_routed_experts", 8);
  c.set("num_experts_per_tok", c.draw.between(1, 3));
  c.set("moe_intermediate_size", c.draw.between(11, 50));
  if (c.draw.coin())
    c.set("n_shared_experts", c.draw.between(1, 2));
  else
    c.set("n_shared_experts", nullptr);
  c.set("first_k_dense_replace", c.draw.between(0, 1));
  c.set("routed_scaling_factor", c.draw.real(0.5, 3));
  c.flag("norm_topk_prob");
}

void deepseek_moe(Config& c) {
  c.llama({.own_head_dim = false});
  deepseek_experts(c);
}

void deepseek_latent(Config& c) {
  c.llama({.own_head_dim = false, .grouped = false});
  c.set("hidden_size", c.draw.between(17, 75));
  deepseek_experts(c);
  const int64_t rope_dim = 2 * c.draw.between(2, 6);
  c.set("q_lora_rank", c.draw.coin() ? Json(c.draw.between(9, 40)) : Json(nullptr));
  c.set("kv_lora_rank", c.draw.any<int64_t>({9, 16, 33, 64}));
  c.set("qk_rope_head_dim", rope_dim);
  c.set("qk_nope_head_dim", c.draw.any<int64_t>({7, 12, 80}));
  c.set("v_head_dim", c.draw.any<int64_t>({5, 16, 96}));
  if (c.draw.coin())
    c.set("rope_scaling", JsonObject{{"type", "yarn"},
                                     {"factor", 40.0},
                                     {"mscale", 0.7},
                                     {"mscale_all_dim", 1.3},
                                     {"original_max_position_embeddings", kTrained}});
}

void deepseek_v2(Config& c) {
  deepseek_latent(c);
  c.set("topk_method", c.draw.any({"greedy", "group_limited_greedy"}));
  c.set("n_group", 4);
  c.set("topk_group", c.draw.between(2, 4));
}

void deepseek_v3(Config& c) {
  deepseek_latent(c);
  c.set("topk_method", "noaux_tc");
  c.set("scoring_func", "sigmoid");
  c.set("n_group", 4);
  c.set("topk_group", c.draw.between(2, 4));
  c.flag("rope_interleave");
}

void gpt_oss(Config& c) {
  c.llama();
  c.window();
  c.experts("num_local_experts", "num_experts_per_tok");
  c.set("swiglu_limit", c.draw.real(1, 7));
  c.set("rope_scaling", JsonObject{{"rope_type", "yarn"},
                                   {"factor", 32.0},
                                   {"truncate", false},
                                   {"original_max_position_embeddings", kTrained}});
}

void gpt2(Config& c) {
  c.draw_sizes({.dim_step = 1, .own_head_dim = false, .grouped = false});
  c.set("n_embd", c.sizes.hidden);
  c.set("n_layer", c.sizes.layers);
  c.set("n_head", c.sizes.heads);
  c.set("n_positions", 41);
  c.set("vocab_size", c.sizes.vocab);
  c.set("n_inner", c.draw.coin() ? Json(c.sizes.inner) : Json(nullptr));
  c.flag("scale_attn_weights");
  c.flag("tie_word_embeddings");
}

void gpt_bigcode(Config& c) {
  gpt2(c);
  c.flag("multi_query");
}

void gpt_neox(Config& c) {
  c.llama({.dim_step = 4, .own_head_dim = false, .grouped = false});
  c.set("rotary_pct", 0.5);
  c.set("layer_norm_eps", 1e-5);
  c.flag("use_parallel_residual");
  c.flag("attention_bias");
}

void granite(Config& c) {
  llama(c);
  c.set("embedding_multiplier", c.draw.real(0.5, 12));
  c.set("attention_multiplier", c.draw.real(0.05, 0.5));
  c.set("residual_multiplier", c.draw.real(0.2, 1));
  c.set("logits_scaling", c.draw.real(0.5, 8));
}

void minicpm(Config& c) {
  c.llama({.own_head_dim = false});
  c.rope(c.sizes.head_dim);
  c.set("scale_emb", c.draw.real(0.5, 12));
  c.set("scale_depth", c.draw.real(0.5, 2));
  c.set("dim_model_base", c.draw.between(5, 30));
}

void olmo2(Config& c) {
  c.llama({.own_head_dim = false});
  c.rope(c.sizes.head_dim);
}

void olmoe(Config& c) {
  c.llama({.own_head_dim = false});
  c.experts("num_experts", "num_experts_per_tok");
  c.flag("norm_topk_prob");
  c.set("clip_qkv", c.draw.coin() ? Json(c.draw.real(0.3, 3)) : Json(nullptr));
}

void smollm3(Config& c) {
  c.llama({.own_head_dim = false});
  c.set("no_rope_layer_interval", c.draw.between(1, 3));
  if (c.draw.coin()) c.window();
  c.flag("use_sliding_window");
}

void cohere(Config& c) {
  c.llama({.own_head_dim = false});
  c.flag("use_qk_norm");
  c.flag("attention_bias");
  c.set("logit_scale", c.draw.real(0.05, 2));
}

void turbomind(Config& c) {
  c.llama();
  c.set("tie_word_embeddings", false);
  c.set("rope_interleaved", true);
  if (c.draw.coin()) {
    c.set("num_key_value_heads", c.sizes.heads);
    c.set("qk_nope_head_dim", c.draw.between(3, 9));
    c.set("qk_rope_head_dim", 2 * c.draw.between(2, 4));
    c.set("head_dim", c.json["qk_nope_head_dim"].as_int64() + c.json["qk_rope_head_dim"].as_int64());
    c.set("q_lora_rank", c.draw.coin() ? c.draw.between(5, 20) : 0);
    c.set("kv_lora_rank", c.draw.between(5, 20));
    c.set("v_head_dim", c.draw.between(3, 9));
  } else {
    c.rope(c.sizes.head_dim);
    c.flag("attention_bias");
    c.flag("use_logn_attn");
  }
  if (c.draw.coin()) return;
  c.experts("num_experts", "num_experts_per_tok");
  c.set("moe_intermediate_size", c.draw.between(11, 50));
  c.set("shared_expert_intermediate_size", c.draw.coin() ? c.draw.between(11, 50) : 0);
  c.flag("shared_expert_gate");
  c.flag("norm_topk_prob");
  JsonArray layers;
  for (int64_t l = 0; l < c.sizes.layers; ++l) layers.push_back(c.draw.coin());
  c.set("expert_layers", layers);
}

struct Entry {
  const char* architecture;
  void (*draw)(Config&);
};
constexpr Entry kEntries[] = {
    {"BaiChuanForCausalLM", baichuan},
    {"BaichuanForCausalLM", baichuan},
    {"ChatGLMForConditionalGeneration", chatglm},
    {"ChatGLMModel", chatglm},
    {"CohereForCausalLM", cohere},
    {"DbrxForCausalLM", dbrx},
    {"DeepseekForCausalLM", deepseek_moe},
    {"DeepseekV2ForCausalLM", deepseek_v2},
    {"DeepseekV3ForCausalLM", deepseek_v3},
    {"FalconForCausalLM", falcon},
    {"GPT2LMHeadModel", gpt2},
    {"GPTBigCodeForCausalLM", gpt_bigcode},
    {"GPTNeoXForCausalLM", gpt_neox},
    {"Gemma2ForCausalLM", gemma2},
    {"Gemma3ForCausalLM", gemma3},
    {"GemmaForCausalLM", gemma},
    {"Glm4ForCausalLM", glm},
    {"GlmForCausalLM", glm},
    {"GptOssForCausalLM", gpt_oss},
    {"GraniteForCausalLM", granite},
    {"InternLM2ForCausalLM", internlm2},
    {"InternLM2ForRewardModel", internlm2},
    {"InternLM3ForCausalLM", internlm3},
    {"InternLMForCausalLM", internlm},
    {"LLaMAForCausalLM", llama},
    {"LlamaForCausalLM", llama},
    {"MiniCPMForCausalLM", minicpm},
    {"MistralForCausalLM", mistral},
    {"MixtralForCausalLM", mixtral},
    {"Olmo2ForCausalLM", olmo2},
    {"OlmoeForCausalLM", olmoe},
    {"Phi3ForCausalLM", phi3},
    {"PhiForCausalLM", phi},
    {"QWenLMHeadModel", qwen_v1},
    {"Qwen2ForCausalLM", qwen2},
    {"Qwen2ForRewardModel", qwen2},
    {"Qwen2MoeForCausalLM", qwen2_moe},
    {"Qwen3ForCausalLM", qwen3},
    {"Qwen3MoeForCausalLM", qwen3_moe},
    {"RWForCausalLM", falcon},
    {"SmolLM3ForCausalLM", smollm3},
    {"StableLMEpochForCausalLM", stablelm},
    {"StableLmForCausalLM", stablelm},
    {"Starcoder2ForCausalLM", starcoder2},
    {"TurboMindForCausalLM", turbomind},
    {"YiForCausalLM", yi},
};

}  // namespace

std::vector<std::string> drawn_architectures() {
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.architecture);
  std::ranges::sort(names);
  return names;
}

JsonObject family_config(const std::string& architecture, Draw& draw, int64_t layers) {
  const auto* entry = std::ranges::find(kEntries, architecture, &Entry::architecture);
  LMD_CHECK(entry != std::end(kEntries), "no entry for ", architecture);
  Config config(draw, layers);
  config.set("architectures", JsonArray{Json(architecture)});
  entry->draw(config);
  return config.json;
}

}  // namespace lmdeploy::testing
