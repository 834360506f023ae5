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

struct KvDemand {
  int64_t block_bytes = 0;
  int64_t block_len = 0;       // tokens
  int64_t session_len = 0;     // tokens
  int64_t max_batch_size = 0;  // sessions that run at once
};

/// Bytes for the KV pool on the CPU. `cache_max_entry_count` in (0, 1): that share of `available_bytes`; 0:
/// enough for all sessions of a full batch, at most a quarter of `available_bytes`. At least one block.
size_t kv_pool_bytes(double cache_max_entry_count, const KvDemand& demand, size_t available_bytes);

}  // namespace lmdeploy
