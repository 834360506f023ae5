#include "random_family.h"

#include <cmath>
#include <set>

#include "draw.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/spec_check.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy::testing {
namespace {

/// Mean and deviation of a tensor's elements.
struct Spread {
  double mean = 0, deviation = 0;
};

Spread spread_of(const WeightRule& rule, const DecoderSpec& spec) {
  const double norm = 1 - spec.norm_offset;
  switch (rule.slot) {
    case Slot::kFinalNorm:
    case Slot::kAttentionNorm:
    case Slot::kAttentionOutNorm:
    case Slot::kMlpNorm:
    case Slot::kMlpOutNorm:
    case Slot::kQNorm:
    case Slot::kKNorm:
      return {norm, 0.2};
    case Slot::kQDownNorm:
    case Slot::kKvDownNorm:
      return {1, 0.2};
    case Slot::kEmbed:
      return {0, 1 / static_cast<double>(spec.embedding_scale)};
    case Slot::kPositions:
      return {0, 0.5};
    case Slot::kCorrection:
      return {0, 0.1};
    case Slot::kSinks:
      return {0, 1};
    default:
      break;
  }
  if (rule.cols == Dim::kNone) return {0, 0.3};  // a bias
  const double gain = rule.slot == Slot::kRouter ? 2.5 : 1.2;
  return {0, gain / std::sqrt(static_cast<double>(size_of(rule.cols, spec)))};
}

class Filler {
 public:
  Filler(const DecoderSpec& spec, uint64_t seed, MemoryCheckpoint& out)
      : spec_(spec), draw_(seed), dtype_(draw_.any({DType::kF32, DType::kF16, DType::kBF16})), out_(out) {}

  void fill(std::span<const WeightTable> tables) {
    const size_t chosen = static_cast<size_t>(draw_.between(0, static_cast<int64_t>(tables.size()) - 1));
    for (const WeightRule& rule : tables[chosen].rules) {
      if (!is_per_layer(rule)) add(rule, DecoderWeights::kNoLayer, {});
      for (int64_t l = 0; is_per_layer(rule) && l < spec_.num_layers; ++l)
        add(rule, l, spec_.layers[static_cast<size_t>(l)]);
    }
  }

 private:
  void add(const WeightRule& rule, int64_t layer, const LayerSpec& layer_spec) {
    if (rule.wanted != nullptr && !rule.wanted(spec_, layer_spec)) return;
    for (int64_t i = 0; i < num_tensors(rule, spec_); ++i) {
      const std::string name = tensor_name(rule, layer, i);
      if (names_.insert(name).second) out_.add(name, tensor(rule));  // two rules may share one
    }
  }

  Tensor tensor(const WeightRule& rule) {
    const std::vector<Shape> shapes = stored_shapes(rule, spec_);
    Tensor tensor(dtype_,
                  shapes[static_cast<size_t>(draw_.between(0, static_cast<int64_t>(shapes.size()) - 1))]);
    const Spread spread = spread_of(rule, spec_);
    const double reach = spread.deviation * std::sqrt(3.0);  // uniform of this deviation
    const TensorView view = tensor.view();
    const int64_t cols = view.cols();
    for (int64_t r = 0; r < view.rows(); ++r)
      for (int64_t c = 0; c < cols; ++c) view.set(r, c, spread.mean + draw_.real(-reach, reach));
    return tensor;
  }

  const DecoderSpec& spec_;
  Draw draw_;
  const DType dtype_;
  MemoryCheckpoint& out_;
  std::set<std::string> names_;
};

}  // namespace

MemoryCheckpoint make_random_family(const JsonObject& config, uint64_t seed) {
  MemoryCheckpoint checkpoint;
  checkpoint.mutable_config() = config;
  const ConfigReader cfg(checkpoint.config(), "random config");
  const ModelFamily& family = find_family(cfg);
  const DecoderSpec spec = checked_spec(family, cfg);
  Filler(spec, seed, checkpoint).fill(family.weights);
  return checkpoint;
}

}  // namespace lmdeploy::testing
