// Reads the config keys of Llama and its relatives.
#include "lmdeploy/models/llama_like.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMostLayers = 1 << 14;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kLargestVocab = 2147483647;  // ids are i32

int64_t in_range(const ConfigReader& cfg, std::string_view key, int64_t value, int64_t most) {
  if (value < 1 || value > most)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"", key, "\" is ", value, ", expected 1 to ", most));
  return value;
}

// The first of "a|b" that the config has; "" when it has none.
std::string_view present_key(const ConfigReader& cfg, std::string_view keys) {
  while (!keys.empty()) {
    const std::string_view key = keys.substr(0, keys.find('|'));
    if (cfg.has(key)) return key;
    keys.remove_prefix(std::min(keys.size(), key.size() + 1));
  }
  return {};
}

int64_t read_head_dim(const ConfigReader& cfg, const ConfigKeys& keys, const DecoderSpec& spec) {
  if (!present_key(cfg, keys.head_dim).empty()) return read_size(cfg, keys.head_dim);
  if (keys.default_head_dim > 0) return keys.default_head_dim;
  if (spec.hidden_size % spec.num_heads != 0)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": hidden size ", spec.hidden_size, " is not a multiple of the ",
                    spec.num_heads, " attention heads, and there is no \"", keys.head_dim, "\""));
  return spec.hidden_size / spec.num_heads;
}

int64_t read_intermediate_size(const ConfigReader& cfg, const ConfigKeys& keys, int64_t hidden_size) {
  if (keys.intermediate_size.empty()) return 1;  // the family sets it
  if (keys.inner_per_hidden == 0) return read_size(cfg, keys.intermediate_size);
  return read_size_or(cfg, keys.intermediate_size, keys.inner_per_hidden * hidden_size);
}

int64_t read_size_or_require(const ConfigReader& cfg, std::string_view keys, int64_t fallback, int64_t most) {
  return fallback > 0 ? read_size_or(cfg, keys, fallback, most) : read_size(cfg, keys, most);
}

void read_heads(const ConfigReader& cfg, const ConfigKeys& keys, DecoderSpec& s) {
  s.num_heads = read_size_or_require(cfg, keys.num_heads, keys.default_heads, kMostHeads);
  const bool as_many = keys.default_kv_heads == 0 || cfg.is_null(keys.num_kv_heads);
  s.num_kv_heads =
      read_size_or(cfg, keys.num_kv_heads, as_many ? s.num_heads : keys.default_kv_heads, kMostHeads);
  s.head_dim = read_head_dim(cfg, keys, s);
}

std::vector<int> read_eos_ids(const ConfigReader& cfg) {
  const Json* ids = cfg.find("eos_token_id");
  if (ids == nullptr) ids = cfg.find_at_top("eos_token_id");
  if (ids == nullptr) return {};
  return token_ids_from(JsonObject{{"eos_token_id", *ids}}, "eos_token_id", cfg.where());
}

}  // namespace

int64_t read_size(const ConfigReader& cfg, std::string_view keys, int64_t most) {
  const std::string_view key = present_key(cfg, keys);
  if (key.empty()) return cfg.require_int(keys.substr(0, keys.find('|')));  // says what is missing
  return in_range(cfg, key, cfg.require_int(key), most);
}

int64_t read_size_or(const ConfigReader& cfg, std::string_view keys, int64_t fallback, int64_t most) {
  return present_key(cfg, keys).empty() ? fallback : read_size(cfg, keys, most);
}

float read_factor(const ConfigReader& cfg, std::string_view keys, double fallback) {
  const std::string_view key = present_key(cfg, keys);
  const double value = key.empty() ? fallback : cfg.get(key, fallback);
  constexpr double kMost = std::numeric_limits<float>::max();
  if (!(value >= 0 && value <= kMost))
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"", key, "\" is ", value, ", expected 0 to ", kMost));
  return static_cast<float>(value);
}

float read_limit(const ConfigReader& cfg, std::string_view key, double fallback) {
  return cfg.is_null(key) ? 0 : read_factor(cfg, key, fallback);
}

Activation activation_from_name(const ConfigReader& cfg, std::string_view key, const std::string& name) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"quick_gelu", Activation::kQuickGelu},
      {"relu", Activation::kRelu},
  };
  std::string known;
  for (const auto& [known_name, activation] : kNames) {
    if (known_name == name) return activation;
    known += cat(known.empty() ? "" : ", ", known_name);
  }
  throw Error(ErrorCode::kUnsupported,
              cat(cfg.where(), ": ", key, " \"", name, "\" is not supported (known: ", known, ")"));
}

std::vector<int> int_list(const ConfigReader& cfg, std::string_view key) {
  const Json* list = cfg.find(key);
  if (list == nullptr) return {};
  std::vector<int> out;
  const auto fail = [&](const Json& found) {
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": \"", key, "\" holds ", to_json_text(found),
                                             ", expected a list of integers"));
  };
  if (!list->is_array()) fail(*list);
  for (const Json& entry : list->get_array()) {
    if (!entry.is_int64() || entry.get_int64() < INT32_MIN || entry.get_int64() > INT32_MAX) fail(entry);
    out.push_back(static_cast<int>(entry.get_int64()));
  }
  return out;
}

namespace {

// What "layer_types" says of each layer; nothing when it is absent.
std::vector<bool> read_layer_types(const ConfigReader& cfg, size_t num_layers) {
  const Json* types = cfg.find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array() || types->get_array().size() != num_layers)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": \"layer_types\" is ", json_kind(*types),
                                             ", expected a list of ", num_layers, " names"));
  std::vector<bool> slides;
  for (const Json& type : types->get_array()) {
    if (type != "sliding_attention" && type != "full_attention")
      throw Error(ErrorCode::kUnsupported,
                  cat(cfg.where(), ": layer_types[", slides.size(), "] is ", to_json_text(type),
                      ", supported: \"full_attention\", \"sliding_attention\""));
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

// By "layer_types", else by the rule, else all.
std::vector<bool> sliding_layers(const ConfigReader& cfg, size_t num_layers,
                                 const std::function<bool(int64_t)>& slides) {
  std::vector<bool> sliding = read_layer_types(cfg, num_layers);
  for (size_t l = sliding.size(); l < num_layers; ++l)
    sliding.push_back(!slides || slides(static_cast<int64_t>(l)));
  return sliding;
}

}  // namespace

void mark_local_rope(const ConfigReader& cfg, DecoderSpec& spec, const std::function<bool(int64_t)>& slides) {
  const std::vector<bool> sliding = sliding_layers(cfg, spec.layers.size(), slides);
  for (size_t l = 0; l < spec.layers.size(); ++l) spec.layers[l].local_rope = sliding[l];
}

void read_windows(const ConfigReader& cfg, DecoderSpec& spec, int64_t fallback,
                  const std::function<bool(int64_t layer)>& slides) {
  const int64_t window = cfg.get("sliding_window", cfg.is_null("sliding_window") ? 0 : fallback);
  if (window < 0)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"sliding_window\" is ", window, ", expected 0 or more"));
  const std::vector<bool> sliding = sliding_layers(cfg, spec.layers.size(), slides);
  for (size_t l = 0; l < spec.layers.size(); ++l)
    spec.layers[l].window = sliding[l] && window < spec.max_positions ? window : 0;
}

int64_t read_max_positions(const ConfigReader& cfg, int64_t fallback) {
  constexpr int64_t kAbsent = INT64_MAX;
  int64_t shortest = kAbsent;
  for (const char* key : {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
                          "model_max_length", "max_sequence_length", "max_seq_length", "seq_len"}) {
    if (cfg.has(key)) shortest = std::min(shortest, in_range(cfg, key, cfg.require_int(key), INT32_MAX));
  }
  return shortest == kAbsent ? fallback : shortest;
}

DecoderSpec read_llama_like(const ConfigReader& cfg, const ConfigKeys& keys) {
  DecoderSpec s;
  s.architecture = cfg.architecture();
  s.hidden_size = read_size(cfg, keys.hidden_size);
  s.intermediate_size = read_intermediate_size(cfg, keys, s.hidden_size);
  s.num_layers = read_size(cfg, keys.num_layers, kMostLayers);
  s.vocab_size = read_size_or_require(cfg, keys.vocab_size, keys.default_vocab, kLargestVocab);
  s.layers.resize(static_cast<size_t>(s.num_layers));
  read_heads(cfg, keys, s);
  s.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(s.head_dim)));
  s.norm_eps = read_factor(cfg, keys.norm_eps, keys.default_norm_eps);
  s.activation = activation_from_name(cfg, keys.activation,
                                      cfg.get(keys.activation, std::string(keys.default_activation).c_str()));
  s.qkv_bias = s.o_bias = cfg.get("attention_bias", keys.default_attention_bias);
  s.mlp_bias = cfg.get("mlp_bias", false);
  s.tied_embedding = cfg.get("tie_word_embeddings", keys.default_tied);
  const int64_t config_max_positions = read_max_positions(cfg, keys.default_max_positions);
  s.rope.kind = RopeSpec::Kind::kNone;
  if (keys.rope)
    s.rope = read_rope(cfg, s.head_dim, config_max_positions, keys.rope_layer_kind, keys.default_rope);
  s.max_positions = scaled_max_positions(s.rope, config_max_positions);
  if (cfg.get("use_logn_attn", false)) s.logn_length = config_max_positions;
  s.eos_ids = read_eos_ids(cfg);
  return s;
}

}  // namespace lmdeploy
