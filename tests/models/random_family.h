// Random weights for a config of any family.
#pragma once

#include "random_llama.h"

namespace lmdeploy::testing {

/// Every tensor that the family's weight rules name for this config, in one of the ways to store it. Hidden
/// states keep their size, biases and norms matter.
MemoryCheckpoint make_random_family(const JsonObject& config, uint64_t seed);

}  // namespace lmdeploy::testing
