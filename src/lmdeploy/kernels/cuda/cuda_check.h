// The one place where CUDA's statuses become errors.
#pragma once

#include <cuda_runtime_api.h>

#include "lmdeploy/core/tensor.h"

namespace lmdeploy::cuda {

/// Throws Error(kResourceExhausted) when the device is out of memory, else kInternal; `what` was being done.
/// Kernels run after their launch: a fault inside one shows at the next call that waits. With
/// CUDA_LAUNCH_BLOCKING=1 in the environment the launch itself names it.
void check(cudaError_t status, const char* what);
/// After a launch of `op` for a tensor of `shape`.
void check_launch(const char* op, const Shape& shape);

}  // namespace lmdeploy::cuda
