// Random tiny configs of every architecture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "draw.h"
#include "lmdeploy/core/json.h"

namespace lmdeploy::testing {

/// Architectures for which family_config() has an entry, sorted.
std::vector<std::string> drawn_architectures();

/// A config.json of the architecture: awkward sizes, options as they fall. `layers` 0: one to three.
JsonObject family_config(const std::string& architecture, Draw& draw, int64_t layers = 0);

}  // namespace lmdeploy::testing
