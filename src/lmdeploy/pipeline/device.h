// What a config's device, dtype and memory fields mean on this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Of PipelineConfig::num_threads.
inline constexpr int kMaxThreads = 1024;

/// Throws Error naming the field: kInvalidArgument for a value outside its range, kUnsupported for what this
/// build does not have.
void check_config(const PipelineConfig& config);

/// Whether `device_type` means the GPU on this machine: auto does where one can be used. Otherwise the log
/// says why not, where this build has a CUDA back end.
bool uses_cuda(const PipelineConfig& config);

/// The back end for a model.
std::unique_ptr<Kernels> make_kernels(const PipelineConfig& config, const Checkpoint& checkpoint);

/// Throws Error: kInvalidArgument for a `device_type`, `tp` or `communicator` that does not exist,
/// kUnsupported where CUDA is not available, and for more ranks than this machine has GPUs.
void check_devices(const PipelineConfig& config);

/// With `tp` above 1: a back end of each GPU, by rank; they are the first ones.
std::vector<std::unique_ptr<Kernels>> make_rank_kernels(const PipelineConfig& config,
                                                        const Checkpoint& checkpoint);

/// Whether weights of this kind are integers of 4 to 8 bits with scales: rounded activations (CpuOptions) are
/// multiplied with them in bytes.
bool holds_integers(DType weights);

/// Whether activations are rounded for products on the CPU (CpuOptions) where the config does not say: never
/// with dtype float32; else for models of which most elements are integers, twice as fast so for less than
/// 0.5 % of perplexity, and for models of floats from 10^9 weights on: smaller ones are fast enough without.
bool rounds_activations(const std::string& dtype, const Checkpoint& checkpoint);

/// Element type of activations on a GPU. auto: bf16 for checkpoints in bf16, else f16. Cards of a compute
/// capability below 8.0 have no bf16: auto is f16 there, with a warning, and Error(kUnsupported) refuses
/// `bfloat16`.
DType cuda_dtype(const std::string& dtype, const Checkpoint& checkpoint, const CudaDevice& device);

/// Element type of the KV cache on the CPU for `dtype`: auto is f16.
DType kv_dtype(const std::string& dtype);

/// Element type of a KV cache with this quant_policy; nothing for 0. Throws Error for one that does not
/// exist.
std::optional<DType> quantized_kv_dtype(int quant_policy);

/// Element type of the KV cache: as quant_policy says, else that of activations on a GPU and of `dtype` on
/// the CPU. Throws Error(kUnsupported) for one that the back end does not take.
DType kv_dtype(const PipelineConfig& config, const Kernels& kernels);

/// The KV pool's size as `cache_max_entry_count` gives it: a number of blocks (1 or more), a share of
/// `available_bytes` (below 1), or the engine's own default (0).
void set_kv_pool(double cache_max_entry_count, size_t available_bytes, EngineConfig& config);

}  // namespace lmdeploy
