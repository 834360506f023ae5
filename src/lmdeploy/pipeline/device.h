// What a config's device, dtype and memory fields mean on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Throws Error naming the field: kInvalidArgument for a value outside its range, kUnsupported for what this
/// build does not have.
void check_config(const PipelineConfig& config);

/// The back end that `device_type` stands for.
std::unique_ptr<Kernels> make_kernels(const PipelineConfig& config);

/// Element type of the KV cache for `dtype`: auto is f16.
DType kv_dtype(const std::string& dtype);

/// The KV pool's size as `cache_max_entry_count` gives it: a number of blocks (1 or more), a share of
/// `available_bytes` (below 1), or the engine's own default (0).
void set_kv_pool(double cache_max_entry_count, size_t available_bytes, EngineConfig& config);

}  // namespace lmdeploy
