#include "lmdeploy/formats/meta_config.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kKnownKeys[] = {"dim",
                                           "n_layers",
                                           "n_heads",
                                           "n_kv_heads",
                                           "multiple_of",
                                           "ffn_dim_multiplier",
                                           "norm_eps",
                                           "rope_theta",
                                           "vocab_size",
                                           "use_scaled_rope",
                                           "rope_scaling_factor",
                                           "max_seq_len",
                                           "max_batch_size"};

void check_keys(const JsonObject& params, const std::string& where) {
  for (const auto& item : params) {
    const std::string_view key = item.key();
    if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), key) != std::end(kKnownKeys)) continue;
    std::string known;
    for (const std::string_view name : kKnownKeys) known += cat(known.empty() ? "" : ", ", name);
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": key ", quote(key), " is not supported: plain Llama models have ", known));
  }
}

int64_t require_positive(const ConfigReader& params, std::string_view key) {
  const int64_t value = params.require_int(key);
  if (value < 1 || value > (int64_t{1} << 31))
    throw Error(ErrorCode::kInvalidData,
                cat(params.where(), ": key ", quote(key), " is ", value, ", expected 1 to 2^31"));
  return value;
}

// llama/model.py of meta-llama/llama: two thirds of 4 * dim, rounded up to multiple_of.
int64_t ffn_size(const ConfigReader& params, int64_t dim) {
  const int64_t multiple = require_positive(params, "multiple_of");
  auto size = 2 * 4 * dim / 3;
  const double multiplier = params.get("ffn_dim_multiplier", 1.0);
  if (!(multiplier > 0 && multiplier < 1000))
    throw Error(ErrorCode::kInvalidData, cat(params.where(), ": key \"ffn_dim_multiplier\" is ", multiplier,
                                             ", expected a number above 0"));
  if (params.has("ffn_dim_multiplier")) size = static_cast<int64_t>(multiplier * static_cast<double>(size));
  return (size + multiple - 1) / multiple * multiple;
}

int64_t checked_ffn_size(const ConfigReader& params, int64_t dim, int64_t rows) {
  if (!params.has("multiple_of")) return rows;
  const int64_t size = ffn_size(params, dim);
  if (size != rows)
    throw Error(ErrorCode::kInvalidData,
                cat(params.where(), ": dim ", dim, ", multiple_of and ffn_dim_multiplier give ", size,
                    " rows of layers.0.feed_forward.w1, the files have ", rows));
  return size;
}

// Not in the file: 2048 (Llama 1), 4096 (Llama 2), 16384 (Code Llama), 8192 (Llama 3), 131072 (3.1 and
// later). The base and the scaling tell them apart; Llama 1 counts as Llama 2.
int64_t max_positions(const ConfigReader& params, bool scaled) {
  if (params.has("max_seq_len")) return require_positive(params, "max_seq_len");
  const double theta = params.get("rope_theta", 10000.0);
  if (scaled) return 131072;
  if (theta == 1e6) return 16384;
  return theta == 500000 ? 8192 : 4096;
}

// The constants are in Meta's code, not in the file. Only the small text models, Llama 3.2 1B and 3B, have a
// factor of 32.
JsonObject llama3_scaling(const ConfigReader& params, int64_t dim) {
  constexpr int64_t kLargestOf32 = 3072;
  const double factor = params.get("rope_scaling_factor", dim <= kLargestOf32 ? 32.0 : 8.0);
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

std::string_view torch_name(DType dtype) {
  if (dtype == DType::kF32) return "float32";
  return dtype == DType::kF16 ? "float16" : "bfloat16";
}

}  // namespace

JsonObject meta_hub_config(const Json& params_json, const std::string& where, const MetaWeights& weights) {
  const ConfigReader params(params_json, where);
  check_keys(params_json.as_object(), where);
  const int64_t dim = require_positive(params, "dim"), heads = require_positive(params, "n_heads");
  const bool scaled = params.get("use_scaled_rope", false);
  const int64_t vocab = params.get("vocab_size", int64_t{-1});
  JsonObject config{
      {"architectures", JsonArray{"LlamaForCausalLM"}},
      {"model_type", "llama"},
      {"hidden_size", dim},
      {"num_hidden_layers", require_positive(params, "n_layers")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", params.has("n_kv_heads") ? require_positive(params, "n_kv_heads") : heads},
      {"intermediate_size", checked_ffn_size(params, dim, weights.ffn_rows)},
      {"rms_norm_eps", params.get("norm_eps", 1e-5)},
      {"rope_theta", params.get("rope_theta", 10000.0)},
      {"rope_interleaved", true},
      {"vocab_size", vocab > 0 ? vocab : weights.embedding_rows},
      {"max_position_embeddings", max_positions(params, scaled)},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", !weights.has_output},
      {"torch_dtype", torch_name(weights.dtype)}};
  if (scaled) config["rope_scaling"] = llama3_scaling(params, dim);
  return config;
}

}  // namespace lmdeploy
