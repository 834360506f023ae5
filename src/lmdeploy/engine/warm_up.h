// What a device takes for its work, taken before the KV cache gets what is left.
#pragma once

#include <cstddef>

#include "lmdeploy/engine/engine.h"

namespace lmdeploy {

/// Runs the largest steps that `config` allows: buffers of the back end that grow with their use have their
/// full size then, and the first request finds everything loaded. The config's pool is not looked at. Returns
/// the bytes that recordings of steps may still take on each device. Where ops read host memory nothing is
/// done, and 0 returned. Throws Error(kResourceExhausted) with the options that need less and a value that
/// fits.
size_t warm_up(Model& model, const Kernels& kernels, const EngineConfig& config);

}  // namespace lmdeploy
