// Launches that overlap: from sm_90 on a kernel may start while the one before it ends (programmatic
// dependent launch), does what does not depend on it, and waits.
#pragma once

#include <utility>

#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/device.h"

namespace lmdeploy::cuda {

/// Every kernel that launch() starts calls it once in each thread before it touches what other kernels write
/// or read: until then only weights, a step's arrays and keys of earlier steps may be read. The kernel after
/// it is let in once all blocks of this one have a place on a multiprocessor.
__device__ inline void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// What others still write may be asked for too, before wait_for_previous_kernel(): the second cache is where
/// all of them meet. Between two uses of a step's small arrays a layer's weights go through it.
__device__ inline void ask_for(const void* line) { asm volatile("prefetch.global.L2 [%0];" ::"l"(line)); }

/// Lets blocks of the kernel ask for so many bytes; before its first launch with them.
template <auto kKernel>
void allow_shared_memory(int bytes) {
  static PerDevice<bool> allowed;
  allowed.get([&] {
    check(cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
          "give a kernel its shared memory");
    return true;
  });
}

/// kernel<<<grid, threads, shared_bytes, stream>>>(args...) in clusters of so many blocks (sm_90 and later if
/// more than one).
template <typename... Parameters, typename... Args>
void launch_clusters(unsigned cluster, void (*kernel)(Parameters...), dim3 grid, int threads,
                     int shared_bytes, cudaStream_t stream, Args&&... args) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.stream = stream;
  config.attrs = attributes;
  const bool can_overlap = device_code().major >= 9;  // older code would not wait
  config.numAttrs = !can_overlap ? 0 : cluster == 1 ? 1 : 2;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launch a kernel");
}
/// How many clusters of so many blocks run at once on the current device.
inline int count_clusters(const void* kernel, unsigned cluster, int threads, int shared_bytes) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {cluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(cluster);
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int count = 0;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), "find how many clusters run at once");
  return count;
}

template <typename... Parameters, typename... Args>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
            Args&&... args) {
  launch_clusters(1, kernel, grid, threads, shared_bytes, stream, std::forward<Args>(args)...);
}

}  // namespace lmdeploy::cuda
