// What a checkpoint becomes, before any weight is read: config and overrides to a spec, rules to a plan.
#pragma once

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/load_plan.h"

namespace lmdeploy {

struct ModelPlan {
  const ModelFamily* family = nullptr;
  DecoderSpec spec;
  LoadPlan load;
};

/// `overrides` are merged over the config; those that nothing reads are warned of. Throws Error as
/// load_model() does.
ModelPlan plan_model(const Checkpoint& checkpoint, JsonObject overrides = {});

}  // namespace lmdeploy
