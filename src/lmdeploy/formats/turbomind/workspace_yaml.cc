// config.yaml (LMDeploy 0.6 to 0.9): model_config, attention_config, lora_config.
#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/formats/turbomind/workspace.h"
#include "lmdeploy/formats/turbomind/workspace_keys.h"
#include "lmdeploy/formats/turbomind/yaml.h"

namespace lmdeploy {
namespace {

constexpr int64_t kLargestInt = 2147483647;
constexpr int64_t kLargestSize = 1 << 24;

[[noreturn]] void refuse(const ConfigReader& keys, std::string_view key, const std::string& instead) {
  throw Error(ErrorCode::kUnsupported, cat(keys.where(), ": ", key, " ", quote(workspace_text(keys, key)),
                                           " is not supported; ", instead));
}

// One number for each layer: a list, or one number for all.
std::vector<int64_t> per_layer(const ConfigReader& keys, std::string_view key, size_t num_layers,
                               int64_t most) {
  const Json* value = keys.find(key);
  if (value == nullptr || !value->is_array())
    return std::vector<int64_t>(num_layers, workspace_int(keys, key, 0, 0, most));
  std::vector<int64_t> out;
  for (const Json& entry : value->get_array()) {
    if (!entry.is_int64() || entry.get_int64() < 0 || entry.get_int64() > most)
      throw Error(ErrorCode::kInvalidData, cat(keys.where(), ": key ", quote(key), " holds ",
                                               to_json_text(entry), ", expected integers from 0 to ", most));
    out.push_back(entry.get_int64());
  }
  if (out.empty()) out.assign(num_layers, 0);
  if (out.size() != num_layers)
    throw Error(ErrorCode::kInvalidData, cat(keys.where(), ": key ", quote(key), " has ", out.size(),
                                             " entries, expected one for each of ", num_layers, " layers"));
  return out;
}

void read_types(const ConfigReader& keys, WorkspaceModel& m) {
  const std::string weights = workspace_text(keys, "weight_type"), data = workspace_text(keys, "data_type");
  const auto dtype_of = [&](std::string_view key, const std::string& name) {
    if (name == "float16" || name == "fp16" || name.empty()) return DType::kF16;
    if (name == "bfloat16" || name == "bf16") return DType::kBF16;
    refuse(keys, key, "supported are float16, bfloat16 and int4; load the original checkpoint");
  };
  if (weights != "int4") {
    m.dtype = dtype_of("weight_type", weights);
    return;
  }
  m.dtype = dtype_of("data_type", data);
  m.group_size = workspace_size(keys, "group_size", 1 << 16);
}

void read_latent(const ConfigReader& keys, WorkspaceModel& m) {
  WorkspaceLatent& latent = m.latent;
  latent.kv_rank = workspace_int(keys, "kv_lora_rank", 0, 0, kLargestSize);
  if (latent.kv_rank == 0) return;
  latent.q_rank = workspace_int(keys, "q_lora_rank", 0, 0, kLargestSize);
  latent.rope_dim = workspace_size(keys, "qk_rope_dim", m.head_dim - 1);
  latent.value_dim = workspace_size(keys, "v_head_dim", m.head_dim);
  latent.nope_dim = m.head_dim - latent.rope_dim;
}

// The numbers of ranks that tensors may be spread over.
void read_ranks(const ConfigReader& keys, WorkspaceModel& m) {
  for (const char* key : {"tensor_para_size", "tp", "attn_tp_size", "mlp_tp_size"}) {
    const int64_t ranks = workspace_int(keys, key, 1, 1, 1 << 10);
    if (std::find(m.ranks.begin(), m.ranks.end(), ranks) == m.ranks.end()) m.ranks.push_back(ranks);
  }
}

WorkspaceModel read_model(const ConfigReader& keys) {
  WorkspaceModel m;
  m.heads = workspace_size(keys, "head_num", 1 << 16);
  m.kv_heads = workspace_size(keys, "kv_head_num", 1 << 16);
  m.head_dim = workspace_int(keys, "size_per_head", 128, 2, 1 << 16);
  m.hidden =
      workspace_int(keys, "hidden_units", std::min(m.heads * m.head_dim, kLargestSize), 1, kLargestSize);
  m.vocab = workspace_size(keys, "vocab_size", kLargestInt);
  const auto num_layers = static_cast<size_t>(workspace_size(keys, "num_layer", 1 << 14));
  require_workspace_key(keys, "inter_size");
  m.inter = per_layer(keys, "inter_size", num_layers, kLargestSize);
  m.experts = per_layer(keys, "expert_num", num_layers, 1 << 16);
  const bool any_experts = std::any_of(m.experts.begin(), m.experts.end(), [](int64_t n) { return n > 0; });
  if (any_experts) m.expert_inter = workspace_size(keys, "expert_inter_size");
  m.shared_gate = workspace_flag(keys, "moe_shared_gate", false);
  require_workspace_key(keys, "attn_bias");
  m.attention_bias = workspace_flag(keys, "attn_bias", false);
  read_types(keys, m);
  read_latent(keys, m);
  read_ranks(keys, m);
  m.split_ends = true;
  const int64_t most_ranks = *std::max_element(m.ranks.begin(), m.ranks.end());
  const int64_t rows = workspace_int(keys, "embedding_size", m.vocab, 1, kLargestInt);
  m.embedding_rows = (rows + most_ranks - 1) / most_ranks * most_ranks;
  return m;
}

// Keys that stand for parts of a model that the layout, as it is documented, has no tensors for.
void refuse_more(const ConfigReader& keys) {
  for (const char* key : {"qk_norm", "mlp_bias", "expert_router_bias", "attn_sink"})
    if (workspace_flag(keys, key, false)) refuse(keys, key, "load the original checkpoint");
  if (workspace_int(keys, "tune_layer_num", 1, 0, kLargestInt) > 1)
    refuse(keys, "tune_layer_num", "it must be 1");
  const Json* windows = keys.find("window_size");
  const auto is_window = [](const Json& size) { return !(size.is_int64() && size.get_int64() == 0); };
  if (windows != nullptr &&
      (windows->is_array() ? std::any_of(windows->get_array().begin(), windows->get_array().end(), is_window)
                           : is_window(*windows)))
    throw Error(ErrorCode::kUnsupported,
                cat(keys.where(), ": window_size is not supported; load the original checkpoint"));
}

// A shared expert stands where a dense layer has its MLP, and all of one kind have one size.
int64_t common_inter(const WorkspaceModel& m, bool with_experts, const std::string& where) {
  int64_t size = -1;
  for (size_t l = 0; l < m.inter.size(); ++l) {
    if ((m.experts[l] > 0) != with_experts) continue;
    if (size >= 0 && size != m.inter[l])
      throw Error(ErrorCode::kUnsupported,
                  cat(where, ": inter_size is ", size, " in one layer and ", m.inter[l],
                      " in another; supported is one size for all layers of a kind"));
    size = m.inter[l];
  }
  return std::max<int64_t>(size, 0);
}

void add_experts(const ConfigReader& keys, const WorkspaceModel& m, JsonObject& hub) {
  const int64_t count = *std::max_element(m.experts.begin(), m.experts.end());
  if (count == 0) return;
  JsonArray layers;
  for (const int64_t experts : m.experts) {
    if (experts != 0 && experts != count)
      throw Error(ErrorCode::kUnsupported,
                  cat(keys.where(), ": expert_num is ", experts, " in one layer and ", count,
                      " in another; supported is one number and 0"));
    layers.push_back(experts > 0);
  }
  const std::string method = workspace_text(keys, "topk_method");
  if (!method.empty() && method != "greedy" && method != "group_limited_greedy")
    refuse(keys, "topk_method",
           "supported are greedy and group_limited_greedy; load the original checkpoint");
  hub["expert_layers"] = std::move(layers);
  hub["num_experts"] = count;
  hub["num_experts_per_tok"] = workspace_size(keys, "experts_per_token", count);
  hub["moe_intermediate_size"] = m.expert_inter;
  hub["shared_expert_intermediate_size"] = common_inter(m, true, keys.where());
  hub["shared_expert_gate"] = m.shared_gate;
  hub["norm_topk_prob"] = workspace_flag(keys, "norm_topk_prob", false);
  hub["routed_scaling_factor"] = workspace_number(keys, "routed_scale", 1, 0);
  if (method != "group_limited_greedy") return;
  hub["n_group"] = workspace_size(keys, "moe_group_num", count);
  hub["topk_group"] = workspace_size(keys, "topk_group", count);
}

void add_latent(const WorkspaceModel& m, JsonObject& hub) {
  if (m.latent.kv_rank == 0) return;
  hub["q_lora_rank"] = m.latent.q_rank;
  hub["kv_lora_rank"] = m.latent.kv_rank;
  hub["qk_nope_head_dim"] = m.latent.nope_dim;
  hub["qk_rope_head_dim"] = m.latent.rope_dim;
  hub["v_head_dim"] = m.latent.value_dim;
}

// The keys of a rope object that are there under the name that the hub has for them.
void add_scaling_keys(const ConfigReader& rope, std::initializer_list<std::string_view> names,
                      JsonObject& scaling) {
  for (const std::string_view name : names)
    if (const Json* value = rope.find(name)) scaling[name] = *value;
}

JsonObject rope_scaling(const ConfigReader& rope, const std::string& type, double factor) {
  JsonObject scaling{{"type", type}, {"factor", factor}};
  if (type == "yarn") {
    add_scaling_keys(rope, {"beta_fast", "beta_slow", "original_max_position_embeddings"}, scaling);
    if (workspace_number(rope, "attention_factor", 0, -1) > 0)
      add_scaling_keys(rope, {"attention_factor"}, scaling);
  }
  if (type == "llama3")
    add_scaling_keys(rope, {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
                     scaling);
  return scaling;
}

// part / whole, such that its product with the whole is not below the part.
double share_of(int64_t part, int64_t whole) {
  double share = static_cast<double>(part) / static_cast<double>(whole);
  while (share * static_cast<double>(whole) < static_cast<double>(part)) share = std::nextafter(share, 1.0);
  return share;
}

// Older files have the keys of rope among those of attention, later ones in an object.
ConfigReader rope_keys(const ConfigReader& attention) {
  for (const char* key : {"rope_param", "rope"})
    if (attention.has(key)) return attention.object(key);
  return attention;
}

int64_t read_rotary_dim(const ConfigReader& rope, const WorkspaceModel& m) {
  const bool latent = m.latent.kv_rank > 0;
  const int64_t most = latent ? m.latent.rope_dim : m.head_dim;
  const char* key = rope.has("dim") ? "dim" : "rotary_embedding";
  const int64_t dim = workspace_int(rope, key, most, latent ? most : 2, most);
  if (dim % 2 != 0)
    throw Error(ErrorCode::kInvalidData,
                cat(rope.where(), ": key ", quote(key), " is ", dim, ", expected an even number"));
  return dim;
}

// "dynamic", "yarn", ...; without a type what the two older keys say.
std::string rope_type(const ConfigReader& rope, double factor) {
  const std::string type = workspace_text(rope, rope.has("type") ? "type" : "rope_scaling_type");
  const bool dynamic = type == "dynamic" || (type.empty() && workspace_flag(rope, "use_dynamic_ntk", false));
  if (!dynamic) return type.empty() && factor > 0 ? "linear" : type;
  if (factor > 0 && factor < 1)
    throw Error(ErrorCode::kInvalidData, cat(rope.where(), ": the factor of dynamic NTK is ", factor,
                                             ", expected 0 (off) or 1 and more"));
  return factor > 0 ? "dynamic" : "";
}

void add_rope(const ConfigReader& rope, const WorkspaceModel& m, JsonObject& hub) {
  hub["rope_theta"] = workspace_number(rope, rope.has("base") ? "base" : "rope_theta", 10000, 1);
  if (m.latent.kv_rank == 0 && m.rotary_dim != m.head_dim)
    hub["partial_rotary_factor"] = share_of(m.rotary_dim, m.head_dim);
  const double factor = workspace_number(rope, rope.has("factor") ? "factor" : "rope_scaling_factor", 0, 0);
  const std::string type = rope_type(rope, factor);
  if (!type.empty() && type != "default") hub["rope_scaling"] = rope_scaling(rope, type, factor);
  hub["max_position_embeddings"] = workspace_int(rope, "max_position_embeddings", 0, 0, kLargestInt);
}

int64_t hub_length(const ConfigReader& model, const JsonObject& hub) {
  const int64_t trained = hub.at("max_position_embeddings").as_int64();
  return trained > 0 ? trained : workspace_int(model, "session_len", 2048, 2, kLargestInt);
}

JsonObject hub_config(const ConfigReader& keys, const ConfigReader& attention, const WorkspaceModel& m) {
  JsonObject hub;
  add_hub_sizes(m, hub);
  hub["intermediate_size"] = std::max<int64_t>(common_inter(m, false, keys.where()), 1);
  hub["rms_norm_eps"] = workspace_number(keys, "norm_eps", 0);
  for (const auto& [key, id] : {std::pair{"start_id", "bos_token_id"}, std::pair{"end_id", "eos_token_id"}}) {
    require_workspace_key(keys, key);
    const Json ids(*keys.find(key));
    token_ids_from(JsonObject{{key, ids}}, key, keys.where());
    hub[id] = ids;
  }
  add_experts(keys, m, hub);
  add_latent(m, hub);
  add_rope(rope_keys(attention), m, hub);
  hub["max_position_embeddings"] = hub_length(keys, hub);
  if (const double scale = workspace_number(attention, "softmax_scale", 0, 0); scale > 0)
    hub["attention_scale"] = scale;
  if (workspace_flag(attention, "use_logn_attn", false)) hub["use_logn_attn"] = true;
  return hub;
}

JsonObject read_settings(const ConfigReader& model, const ConfigReader& attention) {
  JsonObject settings;
  for (const ConfigReader& keys : {model, attention})
    copy_settings(keys,
                  {"session_len", "max_batch_size", "cache_block_seq_len", "quant_policy",
                   "num_tokens_per_iter", "max_prefill_token_num", "max_prefill_iters"},
                  settings);
  for (const ConfigReader& keys : {model, attention}) {
    if (keys.has("enable_prefix_caching"))
      settings["enable_prefix_caching"] = workspace_flag(keys, "enable_prefix_caching", false);
    if (keys.has("cache_max_entry_count"))
      settings["cache_max_entry_count"] = workspace_number(keys, "cache_max_entry_count", 0);
  }
  // model_name is what a server calls the model where there is a key of its own for the template.
  const std::string name = workspace_text(model, model.has("chat_template") ? "chat_template" : "model_name");
  if (!name.empty()) settings["chat_template"] = name;
  return settings;
}

}  // namespace

WorkspaceConfig parse_workspace_yaml(std::string_view text, const std::string& where) {
  const Json file = parse_yaml(text, where);
  const ConfigReader top(file, where);
  const ConfigReader keys = top.object("model_config");
  const Json none = JsonObject();
  const ConfigReader attention =
      top.has("attention_config") ? top.object("attention_config") : ConfigReader(none, where);
  if (top.has("lora_config")) {
    const ConfigReader lora = top.object("lora_config");
    if (!workspace_text(lora, "lora_policy").empty())
      refuse(lora, "lora_policy", "the weights have partial LoRA adapters; load the original checkpoint");
  }
  refuse_more(keys);
  WorkspaceConfig config;
  config.model = read_model(keys);
  config.model.rotary_dim = read_rotary_dim(rope_keys(attention), config.model);
  check_workspace_model(config.model, where);
  config.hub = hub_config(keys, attention, config.model);
  config.settings = read_settings(keys, attention);
  return config;
}

}  // namespace lmdeploy
