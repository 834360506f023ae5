// Which architectures can be run.
#pragma once

#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// The family of the config's architecture. Throws Error(kUnsupported) that says what the model is, where
/// that is known, and lists the supported ones.
const ModelFamily& find_family(const ConfigReader& cfg);

}  // namespace lmdeploy
