// Walks the weight rules over a checkpoint's tensor list and collects everything that does not fit.
#include "lmdeploy/models/load_plan.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <unordered_map>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/formats/quote.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy {
namespace {

constexpr size_t kMostListed = 20;  // tensors named in each group of the message

bool fits(const TensorInfo& info, const WeightRule& rule, const DecoderSpec& spec) {
  if (!is_float(info.dtype) && !is_quantized(info.dtype)) return false;
  const std::vector<Shape> shapes = stored_shapes(rule, spec);
  if (rule.stored == Stored::kFlat) return info.shape.numel() == shapes[0].numel();
  return std::find(shapes.begin(), shapes.end(), info.shape) != shapes.end();
}

/// One group of the message: the first few tensors and how many there are.
class Group {
 public:
  explicit Group(std::string_view title) : title_(title) {}
  void add(const std::string& text) {
    if (count_++ < kMostListed) listed_ += cat("\n    ", text);
  }
  size_t count() const { return count_; }
  std::string text() const {
    if (count_ == 0) return "";
    return cat("\n  ", count_, " ", title_, ":", listed_,
               count_ > kMostListed ? cat("\n    and ", count_ - kMostListed, " more") : "");
  }

 private:
  std::string_view title_;
  std::string listed_;
  size_t count_ = 0;
};

// Buffers that older exports carry along; they follow from the config. docs/models.md lists them.
bool is_derived_buffer(std::string_view name) {
  constexpr std::string_view kSuffixes[] = {"rotary_emb.inv_freq",
                                            ".cos_cached",
                                            ".sin_cached",
                                            ".masked_bias",
                                            ".attn.bias",
                                            "rope_freqs.weight",
                                            "rope_factors_long.weight",
                                            "rope_factors_short.weight"};
  return name.find("attention.rotary_emb") != std::string_view::npos ||
         std::any_of(std::begin(kSuffixes), std::end(kSuffixes),
                     [&](std::string_view suffix) { return name.ends_with(suffix); });
}

// Layers past the last one: heads for multi-token prediction, which plain decoding does not use.
bool is_past_last_layer(std::string_view name, std::string_view layer_prefix, int64_t num_layers) {
  if (layer_prefix.empty() || !name.starts_with(layer_prefix)) return false;
  name.remove_prefix(layer_prefix.size());
  int64_t layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() && end != name.data() + name.size() && *end == '.' && layer >= num_layers;
}

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const DecoderSpec& spec, std::span<const WeightRule> rules)
      : checkpoint_(checkpoint), spec_(spec), rules_(rules), used_(checkpoint.tensors().size()) {
    for (size_t i = 0; i < used_.size(); ++i) index_.emplace(checkpoint.tensors()[i].name, i);
  }

  LoadPlan run() {
    plan_layer(DecoderWeights::kNoLayer);
    for (int64_t layer = 0; layer < spec_.num_layers; ++layer) plan_layer(layer);
    classify_unused();
    throw_problems();
    return std::move(plan_);
  }

 private:
  void plan_layer(int64_t layer) {
    const bool inside = layer != DecoderWeights::kNoLayer;
    const LayerSpec layer_spec = inside ? spec_.layers[static_cast<size_t>(layer)] : LayerSpec();
    std::array<SlotPlan, kNumSlots> slots;
    for (const WeightRule& rule : rules_) {
      if (is_per_layer(rule) != inside) continue;
      if (rule.wanted != nullptr && !rule.wanted(spec_, layer_spec)) continue;
      SlotPlan& slot = slots[static_cast<size_t>(rule.slot)];
      // They are stacked in the order of the table.
      LMD_CHECK(rule.part == static_cast<int>(slot.parts.size()), "part out of order: ", rule.name);
      slot.slot = rule.slot;
      slot.layer = layer;
      slot.parts.push_back(plan_part(rule, layer));
    }
    for (SlotPlan& slot : slots)
      if (!slot.parts.empty()) plan_.slots.push_back(std::move(slot));
  }

  PartPlan plan_part(const WeightRule& rule, int64_t layer) {
    PartPlan part = {&rule, {}};
    for (int64_t i = 0; i < num_tensors(rule, spec_); ++i) {
      const std::string name = tensor_name(rule, layer, i);
      const std::string want = to_string(stored_shapes(rule, spec_)[0]);
      const auto found = index_.find(name);
      if (found == index_.end()) {
        missing_.add(cat(name, " ", want));
        continue;
      }
      const TensorInfo& info = checkpoint_.tensors()[found->second];
      used_[found->second] = true;
      if (!fits(info, rule, spec_))
        unfit_.add(
            cat(name, " is ", info.dtype, " ", info.shape, ", expected a float or quantised kind ", want));
      part.tensors.push_back(found->second);
    }
    return part;
  }

  // A rule that the spec switches off: a tied head that was written out all the same. A bias does not count:
  // leaving it out would change the answers.
  bool is_tied_copy(std::string_view name) const {
    return std::any_of(rules_.begin(), rules_.end(), [&](const WeightRule& rule) {
      return rule.slot == Slot::kLmHead && spec_.tied_embedding && rule.name == name;
    });
  }

  // AutoGPTQ writes a bias for every linear, zeros where the model has none.
  bool is_zero_bias(size_t index) const {
    const TensorInfo& info = checkpoint_.tensors()[index];
    if (!info.name.ends_with(".bias") || info.shape.rank() != 1 || !is_float(info.dtype)) return false;
    const ConstTensorView bias = checkpoint_.tensor(index);
    for (int64_t i = 0; i < bias.cols(); ++i)
      if (bias.at(i) != 0) return false;
    return true;
  }

  std::string_view layer_prefix() const {
    for (const WeightRule& rule : rules_)
      if (is_per_layer(rule)) return rule.name.substr(0, rule.name.find(kLayerMark));
    return {};
  }

  void classify_unused() {
    for (size_t i = 0; i < used_.size(); ++i) {
      const std::string& name = checkpoint_.tensors()[i].name;
      if (used_[i]) continue;
      const bool later = is_past_last_layer(name, layer_prefix(), spec_.num_layers);
      if (later || is_derived_buffer(name) || is_tied_copy(name) || is_zero_bias(i)) {
        plan_.ignored.push_back(i);
        plan_.num_later += later ? 1 : 0;
        LMD_LOG(kDebug, "load ", checkpoint_.path(), ": tensor ", quote(name), " is ignored by design");
      } else {
        unused_.add(cat(quote(name), " ", checkpoint_.tensors()[i].shape));
      }
    }
  }

  void throw_problems() const {
    const size_t problems = missing_.count() + unused_.count() + unfit_.count();
    if (problems == 0) return;
    throw Error(ErrorCode::kInvalidData, cat("load ", checkpoint_.path(), ": the tensors do not fit ",
                                             checkpoint_.config_path(), " (architecture ", spec_.architecture,
                                             ")", missing_.text(), unused_.text(), unfit_.text()));
  }

  const Checkpoint& checkpoint_;
  const DecoderSpec& spec_;
  std::span<const WeightRule> rules_;
  std::unordered_map<std::string_view, size_t> index_;
  std::vector<bool> used_;
  LoadPlan plan_;
  Group missing_{"missing"};
  Group unused_{"not used by this architecture"};
  Group unfit_{"of another shape or kind"};
};

}  // namespace

LoadPlan plan_load(const Checkpoint& checkpoint, const DecoderSpec& spec, std::span<const WeightRule> rules) {
  return Planner(checkpoint, spec, rules).run();
}

std::span<const WeightRule> choose_rules(const Checkpoint& checkpoint, const ModelFamily& family) {
  for (const WeightTable& table : family.weights) {
    const auto is_marker = [&](const TensorInfo& info) { return info.name.ends_with(table.marker); };
    if (table.marker.empty() || std::ranges::any_of(checkpoint.tensors(), is_marker)) return table.rules;
  }
  return family.weights.back().rules;
}

bool has_tensor_for(const Checkpoint& checkpoint, std::span<const WeightRule> rules, Slot slot) {
  return std::any_of(rules.begin(), rules.end(), [&](const WeightRule& rule) {
    return rule.slot == slot && std::any_of(checkpoint.tensors().begin(), checkpoint.tensors().end(),
                                            [&](const TensorInfo& info) { return info.name == rule.name; });
  });
}

}  // namespace lmdeploy
