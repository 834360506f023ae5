// Which of a program's codes a device runs.
#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/device.h"
#include "lmdeploy/kernels/cuda/wgmma.cuh"

namespace lmdeploy::cuda {
namespace {

__global__ void describe_code_kernel(DeviceCode* code) {
#if defined(__CUDA_ARCH__)
  *code = {__CUDA_ARCH__ / 100, LMDEPLOY_HAS_WGMMA == 1};
#endif
}

DeviceCode find_device_code() {
  const Buffer memory(sizeof(DeviceCode), device_allocator());
  auto* on_device = reinterpret_cast<DeviceCode*>(memory.data());
  check(cudaMemset(on_device, 0, sizeof(DeviceCode)), "clear memory");  // what fills it up is copied too
  describe_code_kernel<<<1, 1>>>(on_device);
  check(cudaGetLastError(), "run code that was compiled for this device");
  DeviceCode code;
  check(cudaMemcpy(&code, on_device, sizeof(code), cudaMemcpyDeviceToHost), "run the first kernel");
  return code;
}

}  // namespace

DeviceCode device_code() {
  static PerDevice<DeviceCode> codes;
  return codes.get(find_device_code);
}

}  // namespace lmdeploy::cuda
