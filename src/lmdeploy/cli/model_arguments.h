// Arguments that several commands take: a model, and the name of a chat template.
#pragma once

#include <string>

#include "lmdeploy/cli/console.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Where the model's files are, after downloading them when need be. Ctrl-C ends that and keeps what has
/// arrived.
std::string locate_model(const ModelRequest& request, const Console& console);

/// The same of all models that a pipeline loads, into its config.
void locate_models(PipelineConfig& config, const Console& console);

/// Throws Error(kInvalidArgument) that lists the names unless `name` is one.
void require_template_name(const std::string& name);

}  // namespace lmdeploy
