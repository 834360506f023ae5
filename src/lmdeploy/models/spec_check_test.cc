// Configs whose sizes and factors do not fit each other, or no machine: one error that names the key.
#include "lmdeploy/models/spec_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/registry.h"

namespace lmdeploy {
namespace {

const char* const kLlama =
    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})";
const char* const kQwen3Moe = R"({"architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
  "vocab_size": 100, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32})";
const char* const kDeepseekV3 = R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4, "vocab_size": 100,
  "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
  "n_routed_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 32, "n_group": 4, "topk_group": 2})";
const char* const kGpt2 = R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,
  "vocab_size": 100})";
const char* const kDbrx =
    R"({"architectures": ["DbrxForCausalLM"], "d_model": 64, "n_layers": 2, "n_heads": 4,
  "vocab_size": 100, "attn_config": {"kv_n_heads": 2, "rope_theta": 500000},
  "ffn_config": {"ffn_hidden_size": 96, "moe_num_experts": 4, "moe_top_k": 2}})";
const char* const kChatGlm = R"({"architectures": ["ChatGLMModel"], "hidden_size": 64, "ffn_hidden_size": 96,
  "num_layers": 2, "num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": true,
  "multi_query_group_num": 2, "padded_vocab_size": 100})";
const char* const kFalcon =
    R"({"architectures": ["FalconForCausalLM"], "hidden_size": 64, "num_hidden_layers": 2,
  "num_attention_heads": 4, "num_kv_heads": 2, "new_decoder_architecture": true, "vocab_size": 100})";
const char* const kGemma3 =
    R"({"architectures": ["Gemma3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100})";
const char* const kQwen1 =
    R"({"architectures": ["QWenLMHeadModel"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 4, "kv_channels": 16, "vocab_size": 100, "seq_length": 2048})";
const char* const kInternLm = R"({"architectures": ["InternLMForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})";
const char* const kGptOss =
    R"({"architectures": ["GptOssForCausalLM"], "hidden_size": 64, "intermediate_size": 96,
  "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 100, "num_local_experts": 4})";
const char* const kMixtral = R"({"architectures": ["MixtralForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8, "vocab_size": 100})";
const char* const kGranite = R"({"architectures": ["GraniteForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})";
const char* const kMiniCpm = R"({"architectures": ["MiniCPMForCausalLM"], "hidden_size": 64,
  "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100})";

const char* const kAll[] = {kLlama,  kQwen3Moe, kDeepseekV3, kGpt2,    kDbrx,    kChatGlm, kFalcon,
                            kGemma3, kQwen1,    kInternLm,   kMixtral, kGranite, kMiniCpm};

DecoderSpec spec_of(const Json& config) {
  const ConfigReader cfg(config, "dir/config.json");
  return checked_spec(find_family(cfg), cfg);
}

void merge(JsonObject& base, const JsonObject& changes) {
  for (const auto& [key, value] : changes) {
    if (value.is_object() && base.contains(key))
      merge(base[key].as_object(), value.as_object());
    else
      base[key] = value;
  }
}

TEST(SpecCheck, BasesAreFine) {
  for (const char* base : kAll) EXPECT_NO_THROW(spec_of(parse_json(base, "base"))) << base;
}

struct Wrong {
  const char* base;
  const char* changes;
  std::vector<const char*> words;  // of the message
};

const Wrong kWrong[] = {
    // Heads.
    {kLlama, R"({"num_key_value_heads": 3})", {"\"num_key_value_heads\" is 3", "\"num_attention_heads\" 4"}},
    {kLlama, R"({"num_key_value_heads": 8})", {"\"num_key_value_heads\" is 8"}},
    {kDbrx, R"({"attn_config": {"kv_n_heads": 3}})", {"\"attn_config.kv_n_heads\" is 3", "\"n_heads\" 4"}},
    {kChatGlm, R"({"multi_query_group_num": 3})", {"\"multi_query_group_num\" is 3"}},
    {kFalcon, R"({"num_kv_heads": 3})", {"\"num_kv_heads\" is 3"}},
    {kMixtral, R"({"num_attention_heads": 4})", {"\"num_key_value_heads\" (absent) is 8"}},
    {kGpt2, R"({"n_head": 5})", {"64 is not a multiple of the 5 attention heads"}},
    // Rotary sizes.
    {kLlama, R"({"head_dim": 15})", {"rotary size 15", "head_dim 15"}},
    {kLlama, R"({"partial_rotary_factor": 0.1})", {"rotary size", "partial_rotary_factor"}},
    {kChatGlm, R"({"kv_channels": 10})", {"\"kv_channels\"", "5", "even"}},
    {kDeepseekV3, R"({"qk_rope_head_dim": 7})", {"rotary size 7"}},
    {kQwen1, R"({"kv_channels": 2})", {"\"kv_channels\"", "rotary size of 2"}},
    {kInternLm, R"({"num_attention_heads": 32})", {"rotary size of 2"}},
    // Experts.
    {kQwen3Moe, R"({"num_experts_per_tok": 9})", {"\"num_experts_per_tok\" is 9", "1 to 8"}},
    {kQwen3Moe,
     R"({"num_experts": 4, "num_experts_per_tok": null})",
     {"\"num_experts_per_tok\" (absent) is 8"}},
    {kMixtral, R"({"num_local_experts": 1})", {"\"num_experts_per_tok\" (absent) is 2"}},
    {kGptOss, R"({"experts_per_token": 5})", {"\"experts_per_token\" is 5", "1 to 4"}},
    {kDbrx, R"({"ffn_config": {"moe_top_k": 5}})", {"\"ffn_config.moe_top_k\" is 5"}},
    {kDbrx, R"({"ffn_config": {"moe_normalize_expert_weights": 0}})", {"moe_normalize_expert_weights"}},
    {kDeepseekV3, R"({"n_group": 3})", {"\"n_group\" is 3", "\"n_routed_experts\" 16"}},
    {kDeepseekV3, R"({"n_group": 32})", {"\"n_group\" is 32"}},
    {kDeepseekV3, R"({"topk_group": 5})", {"\"topk_group\" is 5", "1 to 4"}},
    {kDeepseekV3, R"({"num_experts_per_tok": 9})", {"\"num_experts_per_tok\" is 9", "1 to 8", "groups kept"}},
    // Nothing, less than nothing, no integer.
    {kLlama, R"({"hidden_size": 0})", {"\"hidden_size\" is 0"}},
    {kLlama, R"({"num_hidden_layers": -1})", {"\"num_hidden_layers\" is -1"}},
    {kLlama, R"({"vocab_size": 0})", {"\"vocab_size\" is 0"}},
    {kLlama, R"({"intermediate_size": 9.5})", {"\"intermediate_size\"", "9.5"}},
    {kLlama, R"({"max_position_embeddings": 0})", {"\"max_position_embeddings\" is 0"}},
    {kQwen3Moe, R"({"num_experts": 0})", {"\"num_experts\" is 0"}},
    {kDeepseekV3, R"({"n_group": 0})", {"\"n_group\" is 0"}},
    {kDeepseekV3, R"({"moe_layer_freq": 0})", {"\"moe_layer_freq\" is 0"}},
    {kQwen1, R"({"seq_length": 1})", {"\"seq_length\" is 1"}},
    {kGptOss, R"({"swiglu_limit": 0})", {"\"swiglu_limit\" is 0"}},
    // Absurd.
    {kLlama, R"({"hidden_size": 1000000000000})", {"\"hidden_size\" is 1000000000000"}},
    {kLlama, R"({"num_hidden_layers": 100000000})", {"\"num_hidden_layers\" is 100000000"}},
    {kLlama,
     R"({"num_hidden_layers": 16384, "num_attention_heads": 128, "head_dim": 16})",
     {"\"num_attention_heads\" is 128", "2^20"}},
    {kLlama, R"({"vocab_size": 99999999999})", {"\"vocab_size\" is 99999999999"}},
    {kQwen3Moe, R"({"num_experts": 16777216})", {"\"num_experts\" is 16777216", "2^20"}},
    {kLlama, R"({"hidden_size": 18446744073709551615})", {"\"hidden_size\""}},
    {kDeepseekV3, R"({"n_shared_experts": 5000})", {"n_shared_experts is 5000"}},
    // Factors.
    {kLlama, R"({"rope_theta": 1})", {"rope_theta is 1"}},
    {kDbrx, R"({"attn_config": {"rope_theta": 0}})", {"\"attn_config.rope_theta\"", "base of 0"}},
    {kChatGlm, R"({"rope_ratio": 0})", {"rope base of 0"}},
    {kGemma3, R"({"rope_local_base_freq": 0})", {"\"rope_local_base_freq\"", "base of 0"}},
    {kGemma3, R"({"query_pre_attn_scalar": 0})", {"\"query_pre_attn_scalar\""}},
    {kInternLm,
     R"({"rotary": {"type": "dynamic", "base": 10000, "scaling_factor": 0}})",
     {"\"rotary\"", "0"}},
    {kLlama, R"({"rope_scaling": {"type": "linear", "factor": 0}})", {"\"factor\" is 0"}},
    {kLlama,
     R"({"rope_scaling": {"type": "yarn", "factor": 4, "mscale": -1e9, "mscale_all_dim": 1}})",
     {"\"rope_scaling\"", "factor"}},
    {kGranite, R"({"embedding_multiplier": 0})", {"\"embedding_multiplier\""}},
    {kGranite, R"({"logits_scaling": 0})", {"logits_scaling is 0"}},
    {kMiniCpm, R"({"scale_emb": 1e300})", {"\"scale_emb\" is 1e+300"}},
    {kLlama, R"({"rms_norm_eps": -1})", {"\"rms_norm_eps\" is -1"}},
    {kLlama, R"({"rms_norm_eps": 1e300})", {"\"rms_norm_eps\" is 1e+300"}},
};

TEST(SpecCheck, WrongSizesAreNamed) {
  for (const Wrong& wrong : kWrong) {
    Json config = parse_json(wrong.base, "base");
    merge(config.as_object(), parse_json(wrong.changes, "changes").as_object());
    try {
      spec_of(config);
      ADD_FAILURE() << "no error: " << wrong.changes;
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kInvalidData) << message;
      EXPECT_EQ(message.rfind("dir/config.json: ", 0), 0u) << message;
      for (const char* word : wrong.words)
        EXPECT_NE(message.find(word), std::string::npos) << "no " << word << " in " << message;
    }
  }
}

}  // namespace
}  // namespace lmdeploy
