// Engine options that nobody gave: from a converted workspace's config, or the engine's own defaults.
#pragma once

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// `config` with every option set: as given, else by default. Of the chat template and use_logn_attn, unset
/// means something.
PipelineConfig with_defaults(PipelineConfig config);

/// The same with the settings of the checkpoint in between, checked. Throws Error naming the file that has a
/// value which cannot be honoured.
PipelineConfig with_settings(PipelineConfig config, const Checkpoint& checkpoint);

}  // namespace lmdeploy
