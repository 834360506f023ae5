#include "lmdeploy/formats/turbomind/workspace_keys.h"

#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

constexpr int64_t kLargestInt = 2147483647;

[[noreturn]] void refuse(const ConfigReader& keys, std::string_view key, const std::string& found,
                         const std::string& expected) {
  throw Error(ErrorCode::kInvalidData,
              cat(keys.where(), ": key ", quote(key), " is ", found, ", expected ", expected));
}

}  // namespace

void require_workspace_key(const ConfigReader& keys, std::string_view key) {
  if (!keys.has(key))
    throw Error(ErrorCode::kInvalidData,
                cat(keys.where(), ": key ", quote(key), " is missing; it describes the model"));
}

int64_t workspace_size(const ConfigReader& keys, std::string_view key, int64_t most) {
  require_workspace_key(keys, key);
  return workspace_int(keys, key, 0, 1, most);
}

int64_t workspace_int(const ConfigReader& keys, std::string_view key, int64_t fallback, int64_t least,
                      int64_t most) {
  if (!keys.has(key)) return fallback;
  const int64_t value = keys.get(key, fallback);
  if (value < least || value > most) refuse(keys, key, cat(value), cat(least, " to ", most));
  return value;
}

bool workspace_flag(const ConfigReader& keys, std::string_view key, bool fallback) {
  const Json* value = keys.find(key);
  if (value == nullptr) return fallback;
  if (value->is_bool()) return value->get_bool();
  if (value->is_int64() && (value->get_int64() == 0 || value->get_int64() == 1))
    return value->get_int64() == 1;
  refuse(keys, key, to_json_text(*value), "0, 1, True or False");
}

std::string workspace_text(const ConfigReader& keys, std::string_view key) {
  const Json* value = keys.find(key);
  if (value == nullptr) return "";
  if (value->is_string()) return std::string(value->get_string());
  if (value->is_array() || value->is_object()) refuse(keys, key, std::string(json_kind(*value)), "a text");
  return to_json_text(*value);
}

double workspace_number(const ConfigReader& keys, std::string_view key, double least) {
  require_workspace_key(keys, key);
  return workspace_number(keys, key, least, least);
}

double workspace_number(const ConfigReader& keys, std::string_view key, double fallback, double least) {
  const double value = keys.get(key, fallback);
  if (!(value >= least)) refuse(keys, key, cat(value), cat("a number from ", least, " on"));
  return value;
}

void copy_settings(const ConfigReader& keys, std::initializer_list<std::string_view> names,
                   JsonObject& settings) {
  for (const std::string_view name : names)
    if (keys.has(name)) settings[name] = workspace_int(keys, name, 0, 0, kLargestInt);
}

void warn_unused_setting(const ConfigReader& keys, std::string_view key,
                         std::initializer_list<int64_t> usual) {
  const int64_t value = keys.get(key, *usual.begin());
  if (std::find(usual.begin(), usual.end(), value) != usual.end()) return;
  LMD_LOG(kWarning, keys.where(), ": key ", quote(key), " is ", value,
          ", which has no effect in this engine");
}

void add_hub_sizes(const WorkspaceModel& m, JsonObject& hub) {
  hub["architectures"] = JsonArray{"TurboMindForCausalLM"};
  hub["model_type"] = "turbomind";
  hub["hidden_size"] = m.hidden;
  hub["num_hidden_layers"] = static_cast<int64_t>(m.inter.size());
  hub["num_attention_heads"] = m.heads;
  hub["num_key_value_heads"] = m.kv_heads;
  hub["head_dim"] = m.head_dim;
  hub["vocab_size"] = m.vocab;
  hub["attention_bias"] = m.attention_bias;
  hub["rope_interleaved"] = m.latent.kv_rank > 0;  // the rows of others are put in order
  hub["tie_word_embeddings"] = false;
  hub["torch_dtype"] = m.dtype == DType::kBF16 ? "bfloat16" : "float16";
}

void check_workspace_model(const WorkspaceModel& m, const std::string& where) {
  const auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidData, cat(where, ": ", what));
  };
  if (m.heads % m.kv_heads != 0)
    fail(cat("head_num ", m.heads, " is not a multiple of kv_head_num ", m.kv_heads));
  if (m.head_dim % 2 != 0) fail(cat("size_per_head is ", m.head_dim, ", expected an even number"));
  if (m.embedding_rows < m.vocab)
    fail(cat("vocab_size is ", m.vocab, ", but the embedding has ", m.embedding_rows, " rows"));
  for (const int64_t ranks : m.ranks)
    if (m.heads % ranks != 0) fail(cat("the weights of ", ranks, " ranks cannot hold ", m.heads, " heads"));
}

}  // namespace lmdeploy
