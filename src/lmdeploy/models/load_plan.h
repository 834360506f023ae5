// Matches weight rules with the tensors of a checkpoint, before anything is read.
#pragma once

#include <cstdint>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// Tensors of one rule.
struct PartPlan {
  const WeightRule* rule = nullptr;
  std::vector<size_t>
      tensors;  // indices of the checkpoint; several for a name with an expert or a head in it
};

/// One slot of one layer and what fills it.
struct SlotPlan {
  Slot slot = Slot::kEmbed;
  int64_t layer = 0;            // DecoderWeights::kNoLayer outside the layers
  std::vector<PartPlan> parts;  // stacked by rows

  bool is_matrix() const { return parts[0].rule->cols != Dim::kNone; }
};

struct LoadPlan {
  std::vector<SlotPlan> slots;
  std::vector<size_t> ignored;  // tensors that the architecture does not use by design (docs/models.md)
};

/// What a checkpoint is, and which of its tensors fill which slots.
struct ModelPlan {
  const ModelFamily& family;
  DecoderSpec spec;
  LoadPlan weights;
};
/// All that load_model() finds out before it reads a tensor; throws as it does.
ModelPlan plan_model(const Checkpoint& checkpoint, const JsonObject& config_overrides = {});

/// Throws one Error(kInvalidData) that names all missing, unused and unfit tensors.
LoadPlan plan_load(const Checkpoint& checkpoint, const DecoderSpec& spec, std::span<const WeightRule> rules);

/// The rules of the family's first table whose marker is in the checkpoint; those of the last if none is.
std::span<const WeightRule> choose_rules(const Checkpoint& checkpoint, const ModelFamily& family);

/// True when the checkpoint has the tensor that fills `slot` outside the layers.
bool has_tensor_for(const Checkpoint& checkpoint, std::span<const WeightRule> rules, Slot slot);

}  // namespace lmdeploy
