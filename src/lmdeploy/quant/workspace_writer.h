// The weights and config.ini of a workspace.
#pragma once

#include <string>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/quant/convert.h"

namespace lmdeploy {

/// What of the model the documented layout cannot express, in a few words; empty: nothing.
std::string own_layout_reason(const Checkpoint& checkpoint, const ModelPlan& model);

/// Writes the weights in the documented layout. Throws Error(kInvalidArgument) when they cannot be split over
/// `request.tp` ranks, kInvalidData for a number that float16 cannot hold.
void write_workspace_weights(const std::string& folder, const Checkpoint& checkpoint, const ModelPlan& model,
                             const ConvertRequest& request);
void write_workspace_config(const std::string& folder, const Checkpoint& checkpoint, const ModelPlan& model,
                            const ConvertRequest& request, bool own_layout);

/// Inputs that share a scale, as the config of a quantised checkpoint says; 0: it does not say.
int64_t quantized_group_size(const Checkpoint& checkpoint);

void write_text_file(const std::string& path, std::string_view text);

}  // namespace lmdeploy
