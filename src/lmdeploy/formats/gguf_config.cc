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
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";
constexpr std::string_view kYarnLog = "rope.scaling.yarn_log_multiplier";

// Reads metadata of one architecture into a config.
class ConfigTranslator {
 public:
  ConfigTranslator(const GgufContent& content, const GgufArchitecture& architecture, std::string_view where)
      : content_(content), architecture_(architecture), where_(where) {}

  JsonObject translate(std::string_view hub_class) {
    config_ = parse_json(architecture_.constants, architecture_.name).as_object();
    config_["architectures"] = JsonArray{Json(hub_class)};
    config_["model_type"] = architecture_.model_type;
    if (!config_.contains("torch_dtype")) config_["torch_dtype"] = "float16";
    config_["rope_interleaved"] = architecture_.rope_interleaved;
    for (const GgufTensorRule& rule : gguf_common_tensors()) tell(rule);
    for (const GgufTensorRule& rule : architecture_.tensors) tell(rule);
    for (const GgufNeutralRule& rule : gguf_neutral()) check_neutral(rule);
    for (const GgufConfigRule& rule : gguf_common_config()) translate_key(rule);
    for (const GgufConfigRule& rule : architecture_.config) translate_key(rule);
    if (architecture_.divided_experts) add_expert_sizes();
    add_vocab_size();
    if (architecture_.latent_attention) {
      add_latent_dims();
    } else {
      add_head_dims();
    }
    add_windows();
    add_query_scalar();
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
  const GgufTensor* find_tensor(std::string_view name) const {
    const auto found = std::find_if(content_.tensors.begin(), content_.tensors.end(),
                                    [&](const GgufTensor& tensor) { return tensor.name == name; });
    return found == content_.tensors.end() ? nullptr : &*found;
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
  bool bool_of(std::string_view key, const GgufValue& value) const {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag;
    fail(key, cat("is ", gguf_kind(value), ", expected a boolean"));
  }
  double float_of(std::string_view key, const GgufValue& value) const {
    const auto* list = std::get_if<std::vector<double>>(&value);
    const auto* number = std::get_if<double>(&value);
    if (list == nullptr && number == nullptr) return static_cast<double>(int_of(key, value));
    const double found = list != nullptr ? uniform(key, *list) : *number;
    if (!std::isfinite(found)) fail(key, cat("is ", found, ", expected a finite number"));
    return found;
  }

  void tell(const GgufTensorRule& rule) {
    config_[rule.hub] =
        parse_json(find_tensor(rule.tensor) != nullptr ? rule.present : rule.absent, rule.hub);
  }

  bool has_counterpart(std::string_view stored) const {
    if (architecture_.latent_attention && stored == kYarnLog) return true;
    return std::ranges::any_of(architecture_.config,
                               [&](const GgufConfigRule& rule) { return rule.stored == stored; });
  }
  void check_neutral(const GgufNeutralRule& rule) const {
    const std::string key = key_of(rule.stored);
    const GgufValue* value = find(key);
    if (value == nullptr || has_counterpart(rule.stored)) return;
    const auto* flag = std::get_if<bool>(value);
    if (const double number = flag != nullptr ? *flag : float_of(key, *value); number != rule.neutral)
      fail(key, cat("is ", number, ", which is not supported for architecture \"", architecture_.name, "\""),
           ErrorCode::kUnsupported);
  }

  void translate_key(const GgufConfigRule& rule) {
    const std::string key = key_of(rule.stored);
    const GgufValue* value = find(key);
    if (value == nullptr && rule.required) fail(key, "is missing");
    if (value != nullptr) config_[rule.hub] = translate_value(key, *value, rule.kind);
  }
  Json translate_value(std::string_view key, const GgufValue& value, GgufConfigRule::Kind kind) const {
    switch (kind) {
      case GgufConfigRule::Kind::kInt:
        return int_of(key, value);
      case GgufConfigRule::Kind::kFloat:
        return float_of(key, value);
      case GgufConfigRule::Kind::kBool:
        return bool_of(key, value);
      case GgufConfigRule::Kind::kScores:
        break;
    }
    const int64_t number = int_of(key, value);
    if (number != 1 && number != 2)
      fail(key, cat("is ", number, "; supported are 1 (softmax) and 2 (sigmoid)"), ErrorCode::kUnsupported);
    return number == 1 ? "softmax" : "sigmoid";
  }

  // Files before April 2024 do not say them.
  void add_expert_sizes() {
    const int64_t whole = config_int("intermediate_size"), used = config_int("num_experts_per_tok");
    if (!config_.contains("moe_intermediate_size") && used > 0)
      config_["moe_intermediate_size"] = whole / used;
    if (!config_.contains("shared_expert_intermediate_size"))
      config_["shared_expert_intermediate_size"] = whole;
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

  // A head that is not said is hidden size / heads, and turns as a whole. Families' own defaults are others.
  void add_head_dims() {
    const int64_t heads = config_int("num_attention_heads"), hidden = config_int("hidden_size");
    if (!config_.contains("head_dim") && heads > 0 && hidden % heads == 0)
      config_["head_dim"] = hidden / heads;
    const int64_t head_dim = config_int("head_dim");
    const std::string value_key = key_of("attention.value_length"),
                      rotary_key = key_of("rope.dimension_count");
    if (const GgufValue* value = find(value_key); value != nullptr && int_of(value_key, *value) != head_dim)
      fail(value_key, cat("is ", int_of(value_key, *value), ", expected the key length ", head_dim),
           ErrorCode::kUnsupported);
    config_["partial_rotary_factor"] = 1.0;
    const GgufValue* stored = find(rotary_key);
    if (stored == nullptr) return;
    const int64_t rotary = int_of(rotary_key, *stored);
    if (rotary <= 0 || rotary > head_dim)
      fail(rotary_key, cat("is ", rotary, ", expected 1 to the head dimension ", head_dim));
    config_["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);
  }

  int64_t require(std::string_view suffix) const {
    const std::string key = key_of(suffix);
    const GgufValue* value = find(key);
    if (value == nullptr) fail(key, "is missing");
    return int_of(key, *value);
  }

  // Files whose kv_b_proj is split say the sizes of what the cache holds as key_length and value_length.
  void add_latent_dims() {
    const bool split = find(key_of("attention.key_length_mla")) != nullptr;
    const int64_t rotary = require("rope.dimension_count"),
                  key = require(split ? "attention.key_length_mla" : "attention.key_length");
    config_.erase("head_dim");
    config_["qk_rope_head_dim"] = rotary;
    config_["qk_nope_head_dim"] = int64_t{0};
    if (key > rotary && rotary > 0) config_["qk_nope_head_dim"] = key - rotary;
    config_["v_head_dim"] = require(split ? "attention.value_length_mla" : "attention.value_length");
    const bool corrected = std::ranges::any_of(content_.tensors, [](const GgufTensor& tensor) {
      return tensor.name.ends_with(".exp_probs_b.bias");
    });
    config_["topk_method"] = corrected                   ? "noaux_tc"
                             : config_int("n_group") > 1 ? "group_limited_greedy"
                                                         : "greedy";
  }

  // "layer_types" of models in which some layers have a window.
  void add_windows() {
    if (architecture_.window_period == 0) return;
    const int64_t layers = config_int("num_hidden_layers");
    if (layers < 1 || layers > static_cast<int64_t>(content_.tensors.size()))
      fail(key_of("block_count"), cat("is ", layers, ", expected 1 to the number of tensors"));
    const std::vector<bool> slides = sliding_layers(static_cast<size_t>(layers));
    const bool any_window = config_int("sliding_window") > 0;
    JsonArray types;
    for (const bool slide : slides)
      types.emplace_back(slide && any_window ? "sliding_attention" : "full_attention");
    config_["layer_types"] = std::move(types);
  }
  // The key is a list of flags, or a period p: of p layers the last has no window.
  std::vector<bool> sliding_layers(size_t layers) const {
    const std::string key = key_of("attention.sliding_window_pattern");
    const GgufValue* value = find(key);
    if (value != nullptr) {
      if (const auto* flags = std::get_if<std::vector<bool>>(value)) {
        if (flags->size() == layers) return *flags;
        fail(key, cat("has ", flags->size(), " items, expected ", layers));
      }
    }
    const int64_t period = value == nullptr ? architecture_.window_period : int_of(key, *value);
    if (period < 0) fail(key, cat("is ", period, ", expected 0 or more"));
    std::vector<bool> slides;
    for (int64_t l = 0; l < static_cast<int64_t>(layers); ++l)
      slides.push_back(period == 0 || l % period < period - 1);
    return slides;
  }

  void add_query_scalar() {
    if (architecture_.wide_query_layers == 0) return;
    const int64_t heads = config_int("num_attention_heads");
    const bool wide = config_int("num_hidden_layers") == architecture_.wide_query_layers && heads > 0;
    config_["query_pre_attn_scalar"] = wide ? config_int("hidden_size") / heads : config_int("head_dim");
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
    if (find_tensor(kLongFactors) != nullptr || find_tensor(kShortFactors) != nullptr) return add_longrope();
    const std::string key = key_of("rope.scaling.type");
    const GgufValue* value = find(key);
    const auto* type = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
    if (value != nullptr && type == nullptr) fail(key, cat("is ", gguf_kind(*value), ", expected a string"));
    if (type == nullptr || *type == "linear") return add_linear_scaling();
    if (*type == "yarn") return add_yarn_scaling();
    if (*type != "none")
      fail(key,
           cat("is ", quote(*type),
               "; supported are \"none\", \"linear\" and \"yarn\", and \"longrope\" with tensors of factors"),
           ErrorCode::kUnsupported);
  }

  // Its factors are tensors; the key for the kind is not always there.
  void add_longrope() {
    JsonObject scaling{{"rope_type", "longrope"},
                       {"short_factor", factors(kShortFactors)},
                       {"long_factor", factors(kLongFactors)},
                       {"attention_factor", scaling_float("rope.scaling.attn_factor", 1)}};
    scaling["original_max_position_embeddings"] = require("rope.scaling.original_context_length");
    config_["rope_scaling"] = std::move(scaling);
  }
  JsonArray factors(std::string_view name) const {
    const GgufTensor* tensor = find_tensor(name);
    const int64_t most = config_int("head_dim");
    const bool usable = tensor != nullptr && tensor->dtype == DType::kF32 && tensor->shape.rank() == 1 &&
                        tensor->shape[0] <= most;
    if (!usable)
      throw Error(ErrorCode::kInvalidData,
                  cat(where_, ": tensor ", quote(name), " is ",
                      tensor == nullptr ? "missing" : cat(tensor->dtype, " ", tensor->shape),
                      ", expected f32 [rotary size / 2]"));
    const ConstTensorView view(tensor->data, tensor->dtype, tensor->shape);
    JsonArray out;
    for (int64_t j = 0; j < view.cols(); ++j) out.emplace_back(view.at(j));
    return out;
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
    if (architecture_.latent_attention) add_mscale(scaling);
    config_["rope_scaling"] = std::move(scaling);
  }

  // The converter stores a tenth of mscale_all_dim, and mscale, which all DeepSeek models have equal to it,
  // not at all.
  void add_mscale(JsonObject& scaling) const {
    const double tenth = scaling_float(kYarnLog, 0);
    if (tenth == 0) fail(key_of(kYarnLog), "is missing, expected what yarn scaling of this architecture has");
    scaling["mscale"] = tenth / 0.1;
    scaling["mscale_all_dim"] = tenth / 0.1;
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

bool has_experts(const GgufContent& content, std::string_view architecture) {
  const GgufValue* count = content.find(cat(architecture, ".expert_count"));
  return count != nullptr && *count != GgufValue(int64_t{0});
}

}  // namespace

JsonObject hub_config(const GgufContent& content, std::string_view where) {
  const std::string_view name = architecture_of(content, where);
  const GgufArchitecture* known = find_gguf_architecture(name);
  const bool experts = has_experts(content, name);
  const std::string_view hub_class = known == nullptr ? std::string_view()
                                     : experts        ? known->expert_class
                                                      : known->hub_class;
  if (!hub_class.empty()) return ConfigTranslator(content, *known, where).translate(hub_class);
  return {{"architectures", JsonArray{Json(cat("gguf:", name, experts ? " (mixture of experts)" : ""))}}};
}

}  // namespace lmdeploy
