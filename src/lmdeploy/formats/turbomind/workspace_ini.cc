// config.ini: TurboMind 1.0 (LMDeploy 0.0 and 0.1) and 2 (0.2 to 0.5), and our own layout.
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/turbomind/ini.h"
#include "lmdeploy/formats/turbomind/workspace.h"
#include "lmdeploy/formats/turbomind/workspace_keys.h"

namespace lmdeploy {
namespace {

constexpr int64_t kOwnLayout = 1;
constexpr int64_t kLargestInt = 2147483647;
constexpr int64_t kBlockLen = 64;      // the default of both engines
constexpr double kWrittenShare = 0.8;  // converters write it into every file: it is nobody's wish

[[noreturn]] void refuse(const ConfigReader& keys, std::string_view key, const std::string& instead) {
  throw Error(ErrorCode::kUnsupported, cat(keys.where(), ": ", key, " ", quote(workspace_text(keys, key)),
                                           " is not supported; ", instead));
}

// The first generation counts sequences where later ones count blocks.
bool is_first_generation(const ConfigReader& keys) {
  const Json* count = keys.find("cache_max_entry_count");
  return count != nullptr && count->is_int64() && keys.has("use_dynamic_ntk") &&
         !keys.has("cache_block_seq_len");
}

DType stored_dtype(const ConfigReader& keys) {
  const std::string type = workspace_text(keys, "weight_type");
  if (type == "fp16" || type == "fp32" || type.empty()) return DType::kF16;  // fp32 is rounded when written
  if (type == "bf16") return DType::kBF16;
  if (type == "int4")
    refuse(keys, "weight_type",
           "its weights are ordered for one generation of GPU kernels, which is documented nowhere; load the "
           "AWQ "
           "checkpoint itself, or convert it again");
  refuse(keys, "weight_type", "supported are fp16, bf16 and fp32");
}

void refuse_adapters(const ConfigReader& keys) {
  if (!workspace_text(keys, "lora_policy").empty())
    refuse(keys, "lora_policy", "the weights have partial LoRA adapters; load the original checkpoint");
}

WorkspaceModel read_model(const ConfigReader& keys) {
  WorkspaceModel m;
  m.heads = workspace_size(keys, "head_num", 1 << 16);
  m.kv_heads = workspace_size(keys, "kv_head_num", 1 << 16);
  m.head_dim = workspace_int(keys, "size_per_head", 128, 1, 1 << 16);
  m.rotary_dim = m.head_dim;
  m.hidden = m.heads * m.head_dim;
  if (m.hidden > 1 << 24)
    throw Error(ErrorCode::kInvalidData, cat(keys.where(), ": head_num ", m.heads, " times size_per_head ",
                                             m.head_dim, " is more than 2^24"));
  m.vocab = workspace_size(keys, "vocab_size", kLargestInt);
  const auto num_layers = static_cast<size_t>(workspace_size(keys, "num_layer", 1 << 14));
  m.inter.assign(num_layers, workspace_size(keys, "inter_size"));
  m.experts.assign(num_layers, 0);
  for (const char* key : {"attn_bias", "norm_eps", "start_id", "end_id"}) require_workspace_key(keys, key);
  m.attention_bias = workspace_flag(keys, "attn_bias", false);
  m.dtype = stored_dtype(keys);
  const int64_t ranks = workspace_int(keys, "tensor_para_size", 1, 1, 1 << 10);
  if (ranks > 1) m.ranks.push_back(ranks);
  m.embedding_rows = (m.vocab + ranks - 1) / ranks * ranks;
  return m;
}

int64_t trained_length(const ConfigReader& keys, std::string_view user) {
  const int64_t length = workspace_int(keys, "max_position_embeddings", 0, 0, kLargestInt);
  if (length < 2)
    throw Error(ErrorCode::kInvalidData,
                cat(keys.where(), ": ", user,
                    " needs key \"max_position_embeddings\", the trained length; it is ", length));
  return length;
}

// Without use_dynamic_ntk a factor of 1 or more is that of dynamic NTK; beside it, the key says whether the
// factor is that or a linear one. The first generation has the key and no factor.
void add_rope_scaling(const ConfigReader& keys, JsonObject& hub) {
  const bool says = keys.has("use_dynamic_ntk"), first = is_first_generation(keys);
  const bool on = workspace_flag(keys, "use_dynamic_ntk", false);
  const double factor = workspace_number(keys, "rope_scaling_factor", first && on ? 1.0 : 0.0, 0);
  if (factor == 0) return;
  const bool dynamic = on || !says;
  if (dynamic && factor < 1)
    throw Error(ErrorCode::kInvalidData, cat(keys.where(), ": key \"rope_scaling_factor\" is ", factor,
                                             ", expected 0 (off) or a factor of dynamic NTK, 1 or more"));
  if (dynamic) trained_length(keys, "dynamic NTK");
  hub["rope_scaling"] = JsonObject{{"type", dynamic ? "dynamic" : "linear"}, {"factor", factor}};
}

JsonObject hub_config(const ConfigReader& keys, const WorkspaceModel& m) {
  JsonObject hub;
  add_hub_sizes(m, hub);
  hub["intermediate_size"] = m.inter[0];
  hub["rms_norm_eps"] = workspace_number(keys, "norm_eps", 0);
  hub["bos_token_id"] = workspace_int(keys, "start_id", 1, -1, kLargestInt);
  hub["eos_token_id"] = workspace_int(keys, "end_id", 2, -1, kLargestInt);
  hub["rope_theta"] = workspace_number(keys, "rope_theta", 10000, 1);
  add_rope_scaling(keys, hub);
  if (workspace_flag(keys, "use_logn_attn", false)) {
    trained_length(keys, "use_logn_attn");
    hub["use_logn_attn"] = true;
  }
  const int64_t session_len = workspace_int(keys, "session_len", 2048, 0, kLargestInt);
  const int64_t trained = workspace_int(keys, "max_position_embeddings", 0, 0, kLargestInt);
  hub["max_position_embeddings"] = trained > 0 ? trained : std::max<int64_t>(session_len, 2);
  if (workspace_int(keys, "rotary_embedding", m.head_dim, 0, 1 << 16) != m.head_dim)
    refuse(keys, "rotary_embedding", cat("it must be size_per_head, ", m.head_dim));
  return hub;
}

// Sequences of full length, in blocks.
double sequences_in_blocks(const ConfigReader& keys) {
  const int64_t count = workspace_int(keys, "cache_max_entry_count", 1, 1, 1 << 16);
  const int64_t length = workspace_int(keys, "session_len", 2048, 1, kLargestInt);
  return static_cast<double>(count) * std::ceil(static_cast<double>(length) / kBlockLen);
}

void refuse_static_int8(const ConfigReader& keys) {
  if (keys.get("quant_policy", int64_t{0}) != 0)
    refuse(keys, "quant_policy",
           "in a workspace of TurboMind 1.0 it means int8 with scales found offline; set it to 0");
}

void read_cache_share(const ConfigReader& keys, JsonObject& settings) {
  if (is_first_generation(keys)) {
    refuse_static_int8(keys);
    settings["cache_max_entry_count"] = sequences_in_blocks(keys);
  } else if (const double share = workspace_number(keys, "cache_max_entry_count", kWrittenShare, 0);
             share != kWrittenShare) {
    settings["cache_max_entry_count"] = share;
  }
}

JsonObject read_settings(const ConfigReader& keys) {
  JsonObject settings;
  copy_settings(keys,
                {"session_len", "max_batch_size", "cache_block_seq_len", "quant_policy",
                 "num_tokens_per_iter", "max_prefill_token_num", "max_prefill_iters"},
                settings);
  read_cache_share(keys, settings);
  if (keys.has("enable_prefix_caching"))
    settings["enable_prefix_caching"] = workspace_flag(keys, "enable_prefix_caching", false);
  if (const std::string name = workspace_text(keys, "model_name"); !name.empty())
    settings["chat_template"] = name;
  warn_unused_setting(keys, "max_context_token_num", {1, 4});
  warn_unused_setting(keys, "step_length", {1});
  warn_unused_setting(keys, "extra_tokens_per_iter", {0});
  return settings;
}

// In our own layout the model is what its config.json says; these two are engine options.
void add_own_settings(const ConfigReader& keys, JsonObject& settings) {
  if (const double factor = workspace_number(keys, "rope_scaling_factor", 0, 0); factor != 0)
    settings["rope_scaling_factor"] = factor;
  if (workspace_flag(keys, "use_logn_attn", false)) settings["use_logn_attn"] = true;
}

}  // namespace

WorkspaceConfig parse_workspace_ini(std::string_view text, const std::string& where) {
  const Json section = parse_ini(text, "llama", where);
  const ConfigReader keys(section, where);
  WorkspaceConfig config;
  config.settings = read_settings(keys);
  if (const int64_t layout = keys.get("weight_layout", int64_t{0}); layout != 0) {
    if (layout != kOwnLayout)
      refuse(keys, "weight_layout", cat("this version writes and reads ", kOwnLayout));
    config.own_layout = true;
    add_own_settings(keys, config.settings);
    return config;
  }
  refuse_adapters(keys);
  config.model = read_model(keys);
  check_workspace_model(config.model, where);
  config.hub = hub_config(keys, config.model);
  return config;
}

}  // namespace lmdeploy
