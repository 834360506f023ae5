// Reads the rope keys of a config, old and new spellings (docs/models.md).
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {
namespace {

using Kind = RopeSpec::Kind;

constexpr std::string_view kOriginalLength = "original_max_position_embeddings";

struct KindName {
  std::string_view name;
  Kind kind;
};
constexpr KindName kKindNames[] = {
    {"default", Kind::kDefault}, {"none", Kind::kDefault},  // GGUF writes none
    {"mrope", Kind::kDefault},  // equal to default for text: all three positions are one
    {"linear", Kind::kLinear},   {"dynamic", Kind::kDynamicNtk}, {"yarn", Kind::kYarn},
    {"llama3", Kind::kLlama3},   {"longrope", Kind::kLongRope},  {"su", Kind::kLongRope},
};

Kind kind_from_name(const std::string& name, const std::string& where) {
  std::string known;
  for (const KindName& entry : kKindNames) {
    if (entry.name == name) return entry.kind;
    known += cat(known.empty() ? "" : ", ", entry.name);
  }
  throw Error(ErrorCode::kUnsupported,
              cat(where, ": rope kind \"", name, "\" is not known (known: ", known, ")"));
}

/// The places where a rope key may stand, nearest first.
class RopeKeys {
 public:
  RopeKeys(const ConfigReader& cfg, std::string_view layer_kind) : cfg_(cfg) {
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!cfg.has(key)) continue;
      const Json& value = *cfg.find(key);
      if (value.is_object() && value.get_object().empty()) continue;
      const ConfigReader object = cfg.object(key);
      if (!layer_kind.empty() && object.has(layer_kind)) {
        objects_.push_back(object.object(layer_kind));
        continue;
      }
      refuse_per_layer_kinds(value, key);
      objects_.push_back(object);
    }
  }

  /// What holds the kind and its parameters; nothing when the config has neither object.
  const ConfigReader* scaling() const { return objects_.empty() ? nullptr : &objects_.front(); }

  double number(std::initializer_list<std::string_view> keys, double fallback) const {
    for (const ConfigReader& object : objects_)
      for (std::string_view key : keys)
        if (object.has(key)) return object.get(key, fallback);
    for (std::string_view key : keys)
      if (cfg_.has(key)) return cfg_.get(key, fallback);
    return fallback;
  }

  /// In the scaling object, or beside it (Phi-3 has original_max_position_embeddings at the top).
  int64_t length(std::string_view key, int64_t fallback) const {
    const ConfigReader& holder = scaling()->has(key) ? *scaling() : cfg_;
    const int64_t value = holder.get(key, fallback);
    if (value < 2)
      throw Error(ErrorCode::kInvalidData,
                  cat(holder.where(), ": \"", key, "\" is ", value, ", expected a length of at least 2"));
    return value;
  }
  bool has_length(std::string_view key) const { return scaling()->has(key) || cfg_.has(key); }

 private:
  // Gemma 3 in the newest form has one object per kind of layer; reading it as one would drop a kind in
  // silence.
  void refuse_per_layer_kinds(const Json& object, std::string_view key) const {
    if (!object.is_object()) return;  // ConfigReader::object() says so
    for (const auto& [name, value] : object.get_object())
      if (value.is_object())
        throw Error(
            ErrorCode::kUnsupported,
            cat(cfg_.where(), ": ", key, " has an object \"", std::string_view(name.data(), name.size()),
                "\": rope that differs between layers is not supported for this architecture"));
  }

  const ConfigReader& cfg_;
  std::vector<ConfigReader> objects_;
};

Kind read_kind(const ConfigReader& scaling) {
  const bool has_new = scaling.has("rope_type"), has_old = scaling.has("type");
  if (!has_new && !has_old) {
    if (!scaling.has("factor")) return Kind::kDefault;
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(),
                                             ": has \"factor\" but neither \"rope_type\" nor "
                                             "\"type\" to say what it scales"));
  }
  const std::string name = scaling.get(has_new ? "rope_type" : "type", "");
  const Kind kind = kind_from_name(name, scaling.where());
  if (has_new && has_old && kind_from_name(scaling.get("type", ""), scaling.where()) != kind)
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(), ": \"rope_type\" is \"", name,
                                             "\" but \"type\" is \"", scaling.get("type", ""), "\""));
  return kind;
}

double require_positive(const ConfigReader& scaling, std::string_view key) {
  if (!scaling.has(key))
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(), ": \"", key, "\" is missing"));
  const double value = scaling.get(key, 0.0);
  if (!(value > 0) || !std::isfinite(value))
    throw Error(ErrorCode::kInvalidData,
                cat(scaling.where(), ": \"", key, "\" is ", value, ", expected a number above 0"));
  return value;
}

std::vector<double> require_factors(const ConfigReader& scaling, std::string_view key, int64_t count) {
  const Json* list = scaling.find(key);
  if (list == nullptr)
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(), ": \"", key, "\" is missing"));
  const std::string expected = cat(", expected a list of ", count, " numbers above 0 (rotary size / 2)");
  if (!list->is_array() || static_cast<int64_t>(list->get_array().size()) != count)
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(), ": \"", key, "\" is ",
                                             list->is_array() ? cat("a list of ", list->get_array().size())
                                                              : std::string(json_kind(*list)),
                                             expected));
  std::vector<double> factors;
  for (const Json& entry : list->get_array()) {
    const double value = entry.is_number() ? entry.to_number<double>() : 0;
    if (!(value > 0) || !std::isfinite(value))
      throw Error(ErrorCode::kInvalidData,
                  cat(scaling.where(), ": \"", key, "\" holds ", to_json_text(entry), expected));
    factors.push_back(value);
  }
  return factors;
}

// g(f, m) of docs/models.md: how much longer contexts flatten the softmax (Peng et al. 2023, section 3.4).
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

void read_yarn(const RopeKeys& keys, int64_t default_original, RopeSpec& spec) {
  const ConfigReader& scaling = *keys.scaling();
  spec.factor = require_positive(scaling, "factor");
  spec.original_max_positions = keys.length(kOriginalLength, default_original);
  spec.beta_fast = scaling.get("beta_fast", spec.beta_fast);
  spec.beta_slow = scaling.get("beta_slow", spec.beta_slow);
  if (!(spec.beta_slow > 0) || !(spec.beta_fast >= spec.beta_slow))
    throw Error(ErrorCode::kInvalidData,
                cat(scaling.where(), ": beta_fast ", spec.beta_fast, " and beta_slow ", spec.beta_slow,
                    ", expected beta_fast >= beta_slow > 0"));
  spec.truncate = scaling.get("truncate", true);
  const double mscale = scaling.get("mscale", 0.0), mscale_all_dim = scaling.get("mscale_all_dim", 0.0);
  if (scaling.has("attention_factor"))
    spec.attention_factor = require_positive(scaling, "attention_factor");
  else if (mscale != 0 && mscale_all_dim != 0)
    spec.attention_factor = yarn_mscale(spec.factor, mscale) / yarn_mscale(spec.factor, mscale_all_dim);
  else
    spec.attention_factor = yarn_mscale(spec.factor, 1);
}

void read_llama3(const ConfigReader& scaling, RopeSpec& spec) {
  spec.factor = require_positive(scaling, "factor");
  spec.low_freq_factor = require_positive(scaling, "low_freq_factor");
  spec.high_freq_factor = require_positive(scaling, "high_freq_factor");
  if (spec.high_freq_factor <= spec.low_freq_factor)
    throw Error(ErrorCode::kInvalidData, cat(scaling.where(), ": high_freq_factor ", spec.high_freq_factor,
                                             " must be above low_freq_factor ", spec.low_freq_factor));
  require_positive(scaling, kOriginalLength);
  spec.original_max_positions = scaling.require_int(kOriginalLength);
}

void read_longrope(const RopeKeys& keys, int64_t max_positions, int64_t default_original, RopeSpec& spec) {
  const ConfigReader& scaling = *keys.scaling();
  spec.short_factor = require_factors(scaling, "short_factor", spec.rotary_dim / 2);
  spec.long_factor = require_factors(scaling, "long_factor", spec.rotary_dim / 2);
  const int64_t original = keys.length(kOriginalLength, default_original);
  spec.original_max_positions = original;
  const double stretch = keys.has_length(kOriginalLength) || default_original != max_positions
                             ? static_cast<double>(max_positions) / static_cast<double>(original)
                             : scaling.get("factor", 1.0);
  const double derived =
      stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(static_cast<double>(original)));
  const double both =
      scaling.has("attention_factor") ? require_positive(scaling, "attention_factor") : derived;
  spec.attention_factor = scaling.has("short_mscale") ? require_positive(scaling, "short_mscale") : both;
  spec.long_attention_factor = scaling.has("long_mscale") ? require_positive(scaling, "long_mscale") : both;
}

int64_t read_rotary_dim(const RopeKeys& keys, int64_t head_dim, double default_share,
                        const std::string& where) {
  const double share = keys.number({"partial_rotary_factor", "rotary_pct", "rope_pct"}, default_share);
  const double size = static_cast<double>(head_dim) * share;
  if (!(share > 0) || share > 1 || size < 2 || static_cast<int64_t>(size) % 2 != 0)
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": rotary size ", size, " (head_dim ", head_dim, " * partial_rotary_factor ",
                    share, "), expected an even number from 2 to head_dim"));
  return static_cast<int64_t>(size);
}

}  // namespace

double yarn_mscale_of_all(const ConfigReader& cfg, const RopeSpec& spec) {
  const RopeKeys keys(cfg, "");
  return yarn_mscale(spec.factor, keys.scaling()->get("mscale_all_dim", 0.0));
}

RopeSpec read_rope(const ConfigReader& cfg, int64_t head_dim, int64_t config_max_positions,
                   std::string_view layer_kind, const RopeDefaults& defaults) {
  const RopeKeys keys(cfg, layer_kind);
  const int64_t max_positions = cfg.get("max_position_embeddings", config_max_positions);
  const int64_t original_length = defaults.original_length > 0 ? defaults.original_length : max_positions;
  RopeSpec spec;
  spec.theta = keys.number({"rope_theta", "rotary_emb_base"}, defaults.theta);
  if (!(spec.theta > 1) || !std::isfinite(spec.theta))
    throw Error(ErrorCode::kInvalidData,
                cat(cfg.where(), ": rope_theta is ", spec.theta, ", expected a number above 1"));
  spec.rotary_dim = read_rotary_dim(keys, head_dim, defaults.rotary_share, cfg.where());
  spec.interleaved = cfg.get("rope_interleaved", false);
  spec.original_max_positions = max_positions;
  if (keys.scaling() == nullptr) return spec;
  spec.kind = read_kind(*keys.scaling());
  if (spec.kind == Kind::kLinear || spec.kind == Kind::kDynamicNtk)
    spec.factor = require_positive(*keys.scaling(), "factor");
  if (spec.kind == Kind::kDynamicNtk && spec.rotary_dim <= 2)
    throw Error(ErrorCode::kInvalidData, cat(cfg.where(), ": dynamic rope needs a rotary size above 2"));
  if (spec.kind == Kind::kYarn) read_yarn(keys, original_length, spec);
  if (spec.kind == Kind::kLlama3) read_llama3(*keys.scaling(), spec);
  if (spec.kind == Kind::kLongRope) read_longrope(keys, max_positions, original_length, spec);
  return spec;
}

}  // namespace lmdeploy
