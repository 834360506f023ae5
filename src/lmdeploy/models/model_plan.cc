#include "lmdeploy/models/model_plan.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/spec_check.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kRopeFactors = "rope_freqs.weight";  // GGUF

// Objects merge key by key; anything else replaces.
void merge_into(JsonObject& base, const JsonObject& overrides) {
  for (const auto& [key, value] : overrides) {
    Json& target = base[key];
    if (target.is_object() && value.is_object())
      merge_into(target.get_object(), value.get_object());
    else
      target = value;
  }
}

// The rope kind has two homes and two spellings. An override that names a kind must not meet, or lose to,
// what the config says in another one.
void forget_overridden_rope(JsonObject& base, const JsonObject& overrides) {
  for (const std::string_view home : {"rope_scaling", "rope_parameters"}) {
    const Json* given = overrides.if_contains(home);
    if (given == nullptr || !given->is_object()) continue;
    const JsonObject& keys = given->get_object();
    if (!keys.contains("rope_type") && !keys.contains("type")) continue;
    if (home == "rope_parameters") base.erase("rope_scaling");
    Json* present = base.if_contains(home);
    if (present == nullptr || !present->is_object()) continue;
    present->get_object().erase("rope_type");
    present->get_object().erase("type");
  }
}

// Of a config that has its rope in rope_parameters, rope_scaling means that.
JsonObject with_rope_at_home(JsonObject overrides, const JsonObject& base) {
  const Json* scaling = overrides.if_contains("rope_scaling");
  const Json *home = base.if_contains("rope_parameters"), *other = base.if_contains("rope_scaling");
  if (scaling == nullptr || overrides.contains("rope_parameters") || home == nullptr || !home->is_object() ||
      (other != nullptr && !other->is_null()))
    return overrides;
  Json moved = scaling->is_null() ? Json(JsonObject{{"rope_type", "default"}}) : *scaling;
  overrides.erase("rope_scaling");
  overrides["rope_parameters"] = std::move(moved);
  return overrides;
}

void merge_text_keys(JsonObject& text, JsonObject overrides) {
  for (const auto& entry : JsonObject(overrides))
    if (names_text_config(entry.key())) overrides.erase(entry.key());
  forget_overridden_rope(text, overrides);
  merge_into(text, overrides);
}

// `overrides` as they take effect.
Json merged_config(const Checkpoint& checkpoint, JsonObject& overrides) {
  Json config = checkpoint.config();
  if (!config.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat(checkpoint.config_path(), ": is ", json_kind(config), ", expected an object"));
  overrides = with_rope_at_home(std::move(overrides), text_config(config.get_object()));
  forget_overridden_rope(config.get_object(), overrides);
  merge_into(config.get_object(), overrides);
  JsonObject& text = text_config(config.get_object());
  if (&text != &config.get_object()) merge_text_keys(text, overrides);
  return config;
}

void warn_of_unread(const ConfigReader& cfg, const JsonObject& overrides, const std::string& prefix = "") {
  for (const auto& [key, value] : overrides) {
    const std::string path = cat(prefix, std::string_view(key));
    if (value.is_object())
      warn_of_unread(cfg, value.get_object(), names_text_config(key) ? prefix : path + ".");
    else if (!cfg.was_read(path))
      LMD_LOG(kWarning, "hf_overrides: ", quote(path), " has no effect on this model");
  }
}

// A checkpoint presents its weights unquantised and its config without this key; what is left was asked for.
void refuse_quantized(const ConfigReader& cfg, const JsonObject& overrides) {
  if (cfg.has("quantization_config") || overrides.contains("quantization_config"))
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(),
                    ": quantization_config cannot be overridden: how the weights are stored is what "
                    "the files say"));
}

// What no family's original code has, and the forward pass does not do.
void refuse_logn_of_latent(const ConfigReader& cfg, const DecoderSpec& spec) {
  if (spec.has_latent() && spec.logn_length > 0)
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(), ": use_logn_attn is not supported for latent attention"));
}

// The factors that a GGUF file stores instead of naming llama3 scaling.
std::vector<double> read_rope_factors(const Checkpoint& checkpoint, const DecoderSpec& spec) {
  const std::vector<TensorInfo>& tensors = checkpoint.tensors();
  const auto info = std::find_if(tensors.begin(), tensors.end(),
                                 [](const TensorInfo& t) { return t.name == kRopeFactors; });
  if (info == tensors.end() || spec.rope.kind == RopeSpec::Kind::kLlama3) return {};
  const int64_t count = spec.rope.rotary_dim / 2;
  if (!is_float(info->dtype) || !(info->shape == Shape{count}))
    throw Error(ErrorCode::kInvalidData,
                cat("load ", info->file, ": tensor \"", kRopeFactors, "\" is ", info->dtype, " ", info->shape,
                    ", expected a float kind [", count, "]"));
  const ConstTensorView view = checkpoint.tensor(static_cast<size_t>(info - tensors.begin()));
  std::vector<double> factors;
  for (int64_t j = 0; j < count; ++j) {
    factors.push_back(view.at(j));
    if (!(factors.back() > 0))
      throw Error(ErrorCode::kInvalidData, cat("load ", info->file, ": tensor \"", kRopeFactors, "\" has ",
                                               factors.back(), " at ", j, ", expected a number above 0"));
  }
  return factors;
}

// The flag decides; without an output matrix in the files the embedding serves as one either way.
void decide_tied(const Checkpoint& checkpoint, std::span<const WeightRule> rules, DecoderSpec& spec) {
  if (spec.tied_embedding || spec.gives_score || has_tensor_for(checkpoint, rules, Slot::kLmHead)) return;
  LMD_LOG(kInfo, "load ", checkpoint.path(), ": no output matrix, the embedding is used as one");
  spec.tied_embedding = true;
}

}  // namespace

ModelPlan plan_model(const Checkpoint& checkpoint, JsonObject overrides) {
  const Json config = merged_config(checkpoint, overrides);
  const ConfigReader cfg(config,
                         cat(checkpoint.config_path(), overrides.empty() ? "" : " with hf_overrides"));
  ModelPlan plan;
  plan.family = &find_family(cfg);
  refuse_quantized(cfg, overrides);
  plan.spec = checked_spec(*plan.family, cfg);
  refuse_logn_of_latent(cfg, plan.spec);
  warn_of_unread(cfg, overrides);
  plan.spec.rope.freq_factors = read_rope_factors(checkpoint, plan.spec);
  const std::span<const WeightRule> rules = choose_rules(checkpoint, *plan.family);
  decide_tied(checkpoint, rules, plan.spec);
  plan.load = plan_load(checkpoint, plan.spec, rules);
  return plan;
}

}  // namespace lmdeploy
