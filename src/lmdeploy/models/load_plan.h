// Matches weight rules with the tensors of a checkpoint, before anything is read.
#pragma once

#include <cstdint>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// One slot of one layer and the tensors that fill it.
struct SlotPlan {
  Slot slot = Slot::kEmbed;
  int64_t layer = 0;  // DecoderWeights::kNoLayer outside the layers
  bool is_matrix = false;
  std::vector<size_t> tensors;  // indices of the checkpoint, in the order of their parts
};

struct LoadPlan {
  std::vector<SlotPlan> slots;
  std::vector<size_t> ignored;  // tensors that the architecture does not use by design (docs/models.md)
};

/// Throws one Error(kInvalidData) that names all missing, unused and unfit tensors.
LoadPlan plan_load(const Checkpoint& checkpoint, const DecoderSpec& spec, std::span<const WeightRule> rules);

/// True when the checkpoint has the tensor that fills `slot` outside the layers.
bool has_tensor_for(const Checkpoint& checkpoint, std::span<const WeightRule> rules, Slot slot);

}  // namespace lmdeploy
