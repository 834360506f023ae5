// Reads the config keys of Llama and its relatives.
#include "lmdeploy/models/llama_like.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMostLayers = 1 << 14;
constexpr int64_t kMostHeads = 1 << 16;
constexpr int64_t kLargestSize = 1 << 24;      // of hidden, intermediate, head sizes
constexpr int64_t kLargestVocab = 2147483647;  // ids are i32

int64_t in_range(const ConfigReader& cfg, std::string_view key, int64_t value, int64_t most) {
  if (value < 1 || value > most)
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": \"", key, "\" is ", value, ", expected 1 to ", most));
  return value;
}

int64_t read_size(const ConfigReader& cfg, std::string_view key, int64_t most) {
  return in_range(cfg, key, cfg.require_int(key), most);
}

int64_t read_head_dim(const ConfigReader& cfg, const DecoderSpec& spec) {
  if (cfg.has("head_dim")) return read_size(cfg, "head_dim", kLargestSize);
  if (spec.hidden_size % spec.num_heads != 0)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": hidden_size ", spec.hidden_size,
                                             " is not a multiple of num_attention_heads ", spec.num_heads,
                                             ", and there is no \"head_dim\""));
  return spec.hidden_size / spec.num_heads;
}

void read_heads(const ConfigReader& cfg, DecoderSpec& s) {
  s.num_heads = read_size(cfg, "num_attention_heads", kMostHeads);
  s.num_kv_heads =
      in_range(cfg, "num_key_value_heads", cfg.get("num_key_value_heads", s.num_heads), kMostHeads);
  if (s.num_heads % s.num_kv_heads != 0)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": num_attention_heads ", s.num_heads,
                                             " is not a multiple of num_key_value_heads ", s.num_kv_heads));
  s.head_dim = read_head_dim(cfg, s);
}

void require_silu(const ConfigReader& cfg) {
  const std::string act = cfg.get("hidden_act", "silu");
  if (act != "silu" && act != "swish")
    throw Error(ErrorCode::kUnsupported, cat(cfg.where(), ": hidden_act \"", act,
                                             "\" is not supported for this architecture (only silu)"));
}

float read_norm_eps(const ConfigReader& cfg) {
  const double eps = cfg.get("rms_norm_eps", 1e-6);
  if (!(eps >= 0) || !std::isfinite(eps))
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": rms_norm_eps is ", eps, ", expected 0 or more"));
  return static_cast<float>(eps);
}

std::vector<int> read_eos_ids(const ConfigReader& cfg) {
  const Json* ids = cfg.find("eos_token_id");
  if (ids == nullptr) return {};
  return token_ids_from(JsonObject{{"eos_token_id", *ids}}, "eos_token_id", cfg.where());
}

}  // namespace

int64_t read_max_positions(const ConfigReader& cfg) {
  constexpr int64_t kAbsent = INT64_MAX;
  int64_t shortest = kAbsent;
  for (const char* key : {"max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
                          "model_max_length", "max_sequence_length", "max_seq_length", "seq_len"}) {
    if (cfg.has(key)) shortest = std::min(shortest, in_range(cfg, key, cfg.require_int(key), INT32_MAX));
  }
  return shortest == kAbsent ? 2048 : shortest;
}

DecoderSpec read_llama_like(const ConfigReader& cfg) {
  require_silu(cfg);
  DecoderSpec s;
  s.architecture = cfg.architecture();
  s.hidden_size = read_size(cfg, "hidden_size", kLargestSize);
  s.intermediate_size = read_size(cfg, "intermediate_size", kLargestSize);
  s.num_layers = read_size(cfg, "num_hidden_layers", kMostLayers);
  s.vocab_size = read_size(cfg, "vocab_size", kLargestVocab);
  read_heads(cfg, s);
  s.norm_eps = read_norm_eps(cfg);
  s.qkv_bias = s.o_bias = cfg.get("attention_bias", false);
  s.mlp_bias = cfg.get("mlp_bias", false);
  s.tied_embedding = cfg.get("tie_word_embeddings", false);
  const int64_t config_max_positions = read_max_positions(cfg);
  s.rope = read_rope(cfg, s.head_dim, config_max_positions);
  s.max_positions = scaled_max_positions(s.rope, config_max_positions);
  s.eos_ids = read_eos_ids(cfg);
  return s;
}

}  // namespace lmdeploy
