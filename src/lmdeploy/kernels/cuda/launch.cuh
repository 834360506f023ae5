// Launches that overlap: from sm_90 on a kernel may start while the one before it ends (programmatic
// dependent launch), does what does not depend on it, and waits.
#pragma once

#include <utility>

#include "lmdeploy/kernels/cuda/cuda_check.h"

namespace lmdeploy::cuda {

/// Every kernel that launch() starts calls it once in each thread before it touches what other kernels write
/// or read: until then only weights and a step's arrays may be read. The kernel after it is let in here, so
/// that no more than two overlap: more of them take each other's place on the multiprocessors.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/// kernel<<<grid, threads, shared_bytes, stream>>>(args...)
template <typename... Parameters, typename... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
            Args&&... args) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  static const bool can_overlap = [] {
    int major = 0;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "read a device's limits");
    return major >= 9;
  }();
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = can_overlap ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launch a kernel");
}

}  // namespace lmdeploy::cuda
