#include "lmdeploy/formats/quant/quantized_checkpoint.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/derived_checkpoint.h"
#include "lmdeploy/formats/quant/quant_config.h"
#include "lmdeploy/formats/quant/quant_module.h"

namespace lmdeploy {
namespace {

// A module is quantised where a tensor with this suffix is.
struct Rule {
  WeightFormat format;
  std::string_view suffix;
  Recipe (*make)(QuantModule, const QuantConfig&);
};
constexpr Rule kRules[] = {
    {WeightFormat::kAwq, ".qweight", awq_recipe},
    {WeightFormat::kGptq, ".qweight", gptq_recipe},
    {WeightFormat::kCompressedTensors, ".weight_packed", compressed_recipe},
    {WeightFormat::kCompressedTensors, ".weight", scaled_recipe},
    {WeightFormat::kFp8, ".weight", scaled_recipe},
    {WeightFormat::kW8A8, ".weight", scaled_recipe},
    {WeightFormat::kMxfp4, "_blocks", mxfp4_recipe},
};

// Scales of activations and of the KV cache: both stay floats here.
bool is_activation_scale(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {".input_scale",  ".input_zero_point", ".input_scale_ub",
                                            ".output_scale", ".k_scale",          ".v_scale"};
  return std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// `.weight` may be plain: a module that was left out.
bool applies(const Rule& rule, const QuantConfig& config, const TensorInfo& info) {
  const bool eight_bits =
      info.dtype == DType::kI8 || info.dtype == DType::kF8E4M3 || info.dtype == DType::kF8E5M2;
  return rule.format == config.format && info.name.ends_with(rule.suffix) &&
         (rule.suffix != ".weight" || eight_bits);
}

void forget_quantization(JsonObject& config) {
  config.erase("quantization_config");
  for (auto& item : config) {
    if (item.value().is_object()) item.value().get_object().erase("quantization_config");
  }
}

class QuantizedCheckpoint : public DerivedCheckpoint {
 public:
  QuantizedCheckpoint(std::unique_ptr<Checkpoint> stored, const QuantConfig& config)
      : DerivedCheckpoint(std::move(stored)) {
    weight_format_ = config.format;
    forget_quantization(config_.as_object());
    std::vector<bool> used(base().tensors().size());
    std::vector<std::pair<size_t, Recipe>> recipes = find_recipes(config);
    for (const auto& [at, recipe] : recipes)
      for (const size_t source : recipe.sources) used[source] = true;
    if (recipes.empty())
      throw Error(ErrorCode::kInvalidData, cat("open ", path_, ": ", config.where, " says ", config.format,
                                               ", but no tensor is stored so"));
    say_what_is_widened(config, recipes);
    add_all(std::move(recipes), used);
  }

 private:
  std::vector<std::pair<size_t, Recipe>> find_recipes(const QuantConfig& config) const {
    const TensorIndex index(base());
    std::vector<std::pair<size_t, Recipe>> recipes;
    for (size_t i = 0; i < base().tensors().size(); ++i) {
      const TensorInfo& info = base().tensors()[i];
      for (const Rule& rule : kRules) {
        if (!applies(rule, config, info)) continue;
        const std::string prefix = info.name.substr(0, info.name.size() - rule.suffix.size());
        recipes.emplace_back(i, rule.make(QuantModule(index, prefix), config));
        break;
      }
    }
    return recipes;
  }

  void say_what_is_widened(const QuantConfig& config, const std::vector<std::pair<size_t, Recipe>>& recipes) {
    const auto widened = std::count_if(recipes.begin(), recipes.end(), [](const auto& item) {
      return item.second.info.dtype == DType::kF32;
    });
    if (widened == 0) return;
    left_out_.push_back(cat(widened, " of ", recipes.size(), " weights are ", config.format,
                            " in the files and f32 in memory"));
  }

  // In the order of the files.
  void add_all(std::vector<std::pair<size_t, Recipe>> recipes, const std::vector<bool>& used) {
    size_t unused_scales = 0;
    auto next = recipes.begin();
    for (size_t i = 0; i < used.size(); ++i) {
      if (next != recipes.end() && next->first == i) {
        add_computed(std::move(next->second));
        ++next;
      } else if (!used[i] && is_activation_scale(base().tensors()[i].name)) {
        ++unused_scales;
      } else if (!used[i]) {
        add_stored(i, base().tensors()[i].name);
      }
    }
    if (unused_scales == 0) return;
    left_out_.push_back(cat(unused_scales, " scales of activations are not used: those stay floats"));
    LMD_LOG(kInfo, "open ", path_, ": ", left_out_.back());
  }
};

}  // namespace

std::unique_ptr<Checkpoint> dequantized(std::unique_ptr<Checkpoint> base, std::string_view model_format) {
  const QuantConfig config = read_quant_config(*base);
  check_model_format(base->path(), config.format, model_format);
  if (config.format == WeightFormat::kHf) return base;
  return std::make_unique<QuantizedCheckpoint>(std::move(base), config);
}

}  // namespace lmdeploy
