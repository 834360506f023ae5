// Which architectures can be run.
#pragma once

#include <string_view>

#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// Throws Error(kUnsupported) that lists the supported ones; `where` (the config's path) begins the message.
const ModelFamily& find_family(std::string_view architecture, std::string_view where);

}  // namespace lmdeploy
