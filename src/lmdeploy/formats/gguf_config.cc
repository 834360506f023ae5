// hub_config().
#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/gguf_hub.h"
#include "lmdeploy/formats/gguf_tables.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

// llama.cpp's LLAMA_TOKEN_NULL (-1) stored as u32.
constexpr int64_t kNoToken = 0xffffffff;

// Reads metadata of one architecture into a config.
class ConfigTranslator {
 public:
  ConfigTranslator(const GgufContent& content, const GgufArchitecture& architecture, std::string_view where)
      : content_(content), architecture_(architecture), where_(where) {}

  JsonObject translate() {
    config_["architectures"] = JsonArray{Json(architecture_.hub_class)};
    config_["model_type"] = architecture_.model_type;
    config_["torch_dtype"] = "float16";
    config_["hidden_act"] = architecture_.hidden_act;
    config_["rope_interleaved"] = architecture_.rope_interleaved;
    config_["tie_word_embeddings"] = !has_tensor("output.weight");
    config_["attention_bias"] = has_tensor("blk.0.attn_q.bias");
    config_["mlp_bias"] = has_tensor("blk.0.ffn_up.bias");
    for (const GgufNeutralRule& rule : architecture_.neutral) check_neutral(rule);
    for (const GgufConfigRule& rule : architecture_.config) translate_key(rule);
    add_vocab_size();
    add_rotary_dims();
    add_rope_scaling();
    add_token_ids();
    return std::move(config_);
  }

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& what,
                         ErrorCode code = ErrorCode::kInvalidData) const {
    throw Error(code, cat(where_, ": metadata key ", quote(key), " ", what));
  }
  std::string key_of(std::string_view suffix) const { return cat(architecture_.name, ".", suffix); }

  const GgufValue* find(std::string_view key) const { return content_.find(key); }
  bool has_tensor(std::string_view name) const {
    return std::any_of(content_.tensors.begin(), content_.tensors.end(),
                       [&](const GgufTensor& tensor) { return tensor.name == name; });
  }

  // The one value that all items of an array have.
  template <typename T>
  T uniform(std::string_view key, const std::vector<T>& values) const {
    if (values.empty()) fail(key, "is an empty array");
    if (std::any_of(values.begin(), values.end(), [&](T value) { return value != values[0]; }))
      fail(key, "differs between layers, which is not supported", ErrorCode::kUnsupported);
    return values[0];
  }
  int64_t int_of(std::string_view key, const GgufValue& value) const {
    if (const auto* number = std::get_if<int64_t>(&value)) return *number;
    if (const auto* list = std::get_if<std::vector<int64_t>>(&value)) return uniform(key, *list);
    fail(key, cat("is ", gguf_kind(value), ", expected an integer"));
  }
  double float_of(std::string_view key, const GgufValue& value) const {
    const auto* list = std::get_if<std::vector<double>>(&value);
    const auto* number = std::get_if<double>(&value);
    if (list == nullptr && number == nullptr) return static_cast<double>(int_of(key, value));
    const double found = list != nullptr ? uniform(key, *list) : *number;
    if (!std::isfinite(found)) fail(key, cat("is ", found, ", expected a finite number"));
    return found;
  }

  void check_neutral(const GgufNeutralRule& rule) const {
    const std::string key = key_of(rule.stored);
    const GgufValue* value = find(key);
    if (value == nullptr) return;
    if (const double number = float_of(key, *value); number != rule.neutral)
      fail(key, cat("is ", number, ", which is not supported for architecture \"", architecture_.name, "\""),
           ErrorCode::kUnsupported);
  }

  void translate_key(const GgufConfigRule& rule) {
    const std::string key = key_of(rule.stored);
    const GgufValue* value = find(key);
    if (value == nullptr && rule.required) fail(key, "is missing");
    if (value == nullptr) return;
    if (rule.kind == GgufConfigRule::Kind::kInt) {
      config_[rule.hub] = int_of(key, *value);
    } else {
      config_[rule.hub] = float_of(key, *value);
    }
  }

  // The key, else the number of tokens, else the rows of the embedding.
  void add_vocab_size() {
    if (config_.contains("vocab_size")) return;
    if (const GgufValue* tokens = find("tokenizer.ggml.tokens")) {
      if (const auto* list = std::get_if<std::vector<std::string_view>>(tokens)) {
        config_["vocab_size"] = static_cast<int64_t>(list->size());
        return;
      }
    }
    for (const GgufTensor& tensor : content_.tensors) {
      if (tensor.name == "token_embd.weight" && tensor.shape.rank() == 2)
        config_["vocab_size"] = tensor.shape[0];
    }
  }

  // rope.dimension_count is only said in the hub's words when it is not the whole head.
  void add_rotary_dims() {
    const int64_t heads = config_int("num_attention_heads"), hidden = config_int("hidden_size");
    int64_t head_dim = config_int("head_dim");
    if (head_dim == 0 && heads > 0) head_dim = hidden / heads;
    const std::string value_key = key_of("attention.value_length"),
                      rotary_key = key_of("rope.dimension_count");
    if (const GgufValue* value = find(value_key); value != nullptr && int_of(value_key, *value) != head_dim)
      fail(value_key, cat("is ", int_of(value_key, *value), ", expected the key length ", head_dim),
           ErrorCode::kUnsupported);
    const GgufValue* stored = find(rotary_key);
    if (stored == nullptr) return;
    const int64_t rotary = int_of(rotary_key, *stored);
    if (rotary <= 0 || rotary > head_dim)
      fail(rotary_key, cat("is ", rotary, ", expected 1 to the head dimension ", head_dim));
    if (rotary != head_dim)
      config_["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);
  }
  int64_t config_int(std::string_view key) const {
    const Json* value = config_.if_contains(key);
    return value != nullptr && value->is_int64() ? value->get_int64() : 0;
  }

  // Not a number, or not finite: an error.
  double scaling_float(std::string_view suffix, double fallback) const {
    const std::string key = key_of(suffix);
    const GgufValue* value = find(key);
    return value == nullptr ? fallback : float_of(key, *value);
  }

  // As llama.cpp reads it: no type means linear, no factor (or 0) means none; older files call it
  // scale_linear.
  void add_rope_scaling() {
    const std::string key = key_of("rope.scaling.type");
    const GgufValue* value = find(key);
    const auto* type = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
    if (value != nullptr && type == nullptr) fail(key, cat("is ", gguf_kind(*value), ", expected a string"));
    if (type == nullptr || *type == "linear") return add_linear_scaling();
    if (*type == "yarn") return add_yarn_scaling();
    if (*type != "none")
      fail(key, cat("is ", quote(*type), "; supported are \"none\", \"linear\" and \"yarn\""),
           ErrorCode::kUnsupported);
  }

  // 0 when there is none.
  double scaling_factor() const {
    const double factor = scaling_float("rope.scaling.factor", scaling_float("rope.scale_linear", 0));
    if (factor < 0) fail(key_of("rope.scaling.factor"), cat("is ", factor, ", expected a number above 0"));
    return factor;
  }

  void add_linear_scaling() {
    if (const double attention = scaling_float("rope.scaling.attn_factor", 1); attention != 1)
      fail(key_of("rope.scaling.attn_factor"),
           cat("is ", attention, ", which linear scaling has no place for"), ErrorCode::kUnsupported);
    const double factor = scaling_factor();
    if (factor != 0 && factor != 1)
      config_["rope_scaling"] = JsonObject{{"rope_type", "linear"}, {"factor", factor}};
  }

  // llama.cpp multiplies cos and sin by attn_factor * (0.1 ln factor + 1) (ggml: rope_yarn); the hub's
  // attention_factor is that whole product.
  void add_yarn_scaling() {
    const double factor = scaling_factor();
    if (factor == 0) fail(key_of("rope.scaling.factor"), "is missing, expected the factor of yarn scaling");
    JsonObject scaling{{"rope_type", "yarn"}, {"factor", factor}};
    const std::string original = key_of("rope.scaling.original_context_length");
    if (const GgufValue* value = find(original))
      scaling["original_max_position_embeddings"] = int_of(original, *value);
    if (const double attention = scaling_float("rope.scaling.attn_factor", 1); attention != 1)
      scaling["attention_factor"] = attention * (0.1 * std::log(std::max(factor, 1.0)) + 1);
    if (const double fast = scaling_float("rope.scaling.yarn_beta_fast", 0); fast != 0)
      scaling["beta_fast"] = fast;
    if (const double slow = scaling_float("rope.scaling.yarn_beta_slow", 0); slow != 0)
      scaling["beta_slow"] = slow;
    config_["rope_scaling"] = std::move(scaling);
  }

  const int64_t* find_id(std::string_view key) const {
    const GgufValue* value = find(key);
    if (value == nullptr) return nullptr;
    const auto* id = std::get_if<int64_t>(value);
    if (id == nullptr) fail(key, cat("is ", gguf_kind(*value), ", expected an integer"));
    return *id == kNoToken ? nullptr : id;
  }

  // A turn's end (eot) and a message's end (eom) stop generation as the text's end does.
  void add_token_ids() {
    if (const int64_t* id = find_id("tokenizer.ggml.bos_token_id")) config_["bos_token_id"] = *id;
    if (const int64_t* id = find_id("tokenizer.ggml.padding_token_id")) config_["pad_token_id"] = *id;
    JsonArray ends;
    for (const char* key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
      const int64_t* id = find_id(key);
      if (id != nullptr && std::find(ends.begin(), ends.end(), Json(*id)) == ends.end())
        ends.emplace_back(*id);
    }
    if (ends.size() == 1) config_["eos_token_id"] = ends[0];
    if (ends.size() > 1) config_["eos_token_id"] = std::move(ends);
  }

  const GgufContent& content_;
  const GgufArchitecture& architecture_;
  std::string_view where_;
  JsonObject config_;
};

// A name fit to stand in a config: what llama.cpp gives out is like "qwen2vl" or "gpt-oss".
std::string_view architecture_of(const GgufContent& content, std::string_view where) {
  const GgufValue* value = content.find("general.architecture");
  if (value == nullptr)
    throw Error(ErrorCode::kInvalidData, cat(where, ": no metadata key \"general.architecture\""));
  const auto* name = std::get_if<std::string_view>(value);
  const bool usable = name != nullptr && !name->empty() && name->size() <= 64 &&
                      std::all_of(name->begin(), name->end(), [](char c) { return c > ' ' && c < 0x7f; });
  if (!usable)
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": metadata key \"general.architecture\" is ",
                    name == nullptr ? std::string(gguf_kind(*value)) : quote(*name), ", expected a name"));
  return *name;
}

// Mixtral's files say "llama" too; their layers are others.
bool has_experts(const GgufContent& content, std::string_view architecture) {
  const GgufValue* count = content.find(cat(architecture, ".expert_count"));
  return count != nullptr && *count != GgufValue(int64_t{0});
}

}  // namespace

JsonObject hub_config(const GgufContent& content, std::string_view where) {
  const std::string_view name = architecture_of(content, where);
  const GgufArchitecture* known = find_gguf_architecture(name);
  const bool experts = has_experts(content, name);
  if (known != nullptr && !experts) return ConfigTranslator(content, *known, where).translate();
  return {{"architectures", JsonArray{Json(cat("gguf:", name, experts ? " (mixture of experts)" : ""))}}};
}

}  // namespace lmdeploy
