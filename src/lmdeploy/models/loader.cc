// load_model(): config and overrides to a spec, rules to a plan, tensors to packed weights one slot at a
// time.
#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/load_plan.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/models/registry.h"
#include "lmdeploy/models/stored_weight.h"

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

Json merged_config(const Checkpoint& checkpoint, const JsonObject& overrides) {
  Json config = checkpoint.config();
  if (!config.is_object())
    throw Error(ErrorCode::kInvalidData,
                cat(checkpoint.config_path(), ": is ", json_kind(config), ", expected an object"));
  forget_overridden_rope(config.get_object(), overrides);
  merge_into(config.get_object(), overrides);
  return config;
}

// A checkpoint presents its weights unquantised and its config without this key; what is left was asked for.
void refuse_quantized(const ConfigReader& cfg) {
  if (cfg.has("quantization_config"))
    throw Error(ErrorCode::kUnsupported,
                cat(cfg.where(),
                    ": quantization_config cannot be overridden: how the weights are stored is what "
                    "the files say"));
}

int64_t bytes_of(const TensorInfo& info) {
  if (info.shape.rank() == 0) return block_bytes(info.dtype);
  return row_bytes(info.dtype, info.shape.numel());
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
  if (spec.tied_embedding || has_tensor_for(checkpoint, rules, Slot::kLmHead)) return;
  LMD_LOG(kInfo, "load ", checkpoint.path(), ": no output matrix, the embedding is used as one");
  spec.tied_embedding = true;
}

/// Reads the tensors of a plan into weights, one slot at a time.
class WeightReader {
 public:
  WeightReader(const Checkpoint& checkpoint, const Kernels& kernels, const LoadOptions& options)
      : checkpoint_(checkpoint), kernels_(kernels), options_(options) {
    for (const TensorInfo& info : checkpoint.tensors()) total_bytes_ += bytes_of(info);
  }

  DecoderWeights read(const LoadPlan& plan, const DecoderSpec& spec) {
    DecoderWeights weights(spec.num_layers);
    report();
    count_uses(plan);
    for (const size_t index : plan.ignored) finish(index);
    for (const SlotPlan& slot : plan.slots) {
      if (slot.is_matrix())
        read_matrices(slot, spec, weights);
      else
        weights.set_vector(slot.slot, slot.layer, read_vector(slot, spec));
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors)
          if (--uses_[index] == 0) finish(index);
    }
    if (spec.tied_embedding) weights.share_matrix(Slot::kEmbed, Slot::kLmHead);
    return weights;
  }

 private:
  // Two slots may read parts of one tensor.
  void count_uses(const LoadPlan& plan) {
    uses_.assign(checkpoint_.tensors().size(), 0);
    for (const SlotPlan& slot : plan.slots)
      for (const PartPlan& part : slot.parts)
        for (const size_t index : part.tensors) ++uses_[index];
  }

  // Matrix by matrix, so that no more than one exists besides its packed form.
  void read_matrices(const SlotPlan& slot, const DecoderSpec& spec, DecoderWeights& weights) const {
    const int64_t count = num_matrices(*slot.parts[0].rule, spec);
    for (int64_t i = 0; i < count; ++i) {
      std::vector<MatrixPiece> pieces;
      std::vector<ConstTensorView> views;
      for (const PartPlan& part : slot.parts) {
        const bool own_tensor = part.tensors.size() > 1;  // of each expert or head
        const size_t tensor = part.tensors[own_tensor ? static_cast<size_t>(i) : 0];
        pieces.push_back(take_matrix(checkpoint_.tensor(tensor), *part.rule, spec, own_tensor ? 0 : i));
        views.push_back(pieces.back().view);
      }
      weights.add_matrix(slot.slot, slot.layer, kernels_.pack_weight(views));
    }
  }

  Tensor read_vector(const SlotPlan& slot, const DecoderSpec& spec) const {
    std::vector<float> all;
    for (const PartPlan& part : slot.parts) {
      for (const size_t index : part.tensors) {
        const std::vector<float> values = take_vector(checkpoint_.tensor(index), *part.rule, spec);
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    Tensor out(DType::kF32, {static_cast<int64_t>(all.size())});
    std::memcpy(out.view().data(), all.data(), all.size() * sizeof(float));
    return kernels_.to_device(std::move(out));
  }

  void finish(size_t index) {
    checkpoint_.drop(index);
    done_bytes_ += bytes_of(checkpoint_.tensors()[index]);
    report();
  }
  void report() const {
    if (options_.progress) options_.progress(done_bytes_, total_bytes_);
  }

  const Checkpoint& checkpoint_;
  const Kernels& kernels_;
  const LoadOptions& options_;
  std::vector<int> uses_;  // of each tensor, still to come
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const Kernels& kernels,
                                  const LoadOptions& options) {
  const Json config = merged_config(checkpoint, options.config_overrides);
  const ConfigReader cfg(config, checkpoint.config_path());
  const ModelFamily& family = find_family(cfg.architecture(), checkpoint.config_path());
  refuse_quantized(cfg);
  DecoderSpec spec = family.read_spec(cfg);
  spec.architecture = family.architecture;
  spec.rope.freq_factors = read_rope_factors(checkpoint, spec);
  const std::span<const WeightRule> rules = choose_rules(checkpoint, family);
  decide_tied(checkpoint, rules, spec);
  const LoadPlan plan = plan_load(checkpoint, spec, rules);
  if (!plan.ignored.empty())
    LMD_LOG(kInfo, "load ", checkpoint.path(), ": ", plan.ignored.size(),
            " tensors are ignored by design, first ", checkpoint.tensors()[plan.ignored[0]].name);
  DecoderWeights weights = WeightReader(checkpoint, kernels, options).read(plan, spec);
  return family.make(spec, std::move(weights), kernels, options);
}

}  // namespace lmdeploy
