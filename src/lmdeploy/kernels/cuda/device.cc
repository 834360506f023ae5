// Devices, their memory, and errors.
#include "lmdeploy/kernels/cuda/device.h"

#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/device_support.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  const ErrorCode code =
      status == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted : ErrorCode::kInternal;
  throw Error(code,
              cat("CUDA: ", what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"));
}

void check_launch(const char* op, const Shape& shape) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) check(status, cat(op, " of ", shape).c_str());
}

namespace {

class DeviceAllocator : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes == 0 ? 1 : bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // forgets it: the next check must not see it
      size_t free_bytes = 0, total_bytes = 0;
      cudaMemGetInfo(&free_bytes, &total_bytes);
      throw Error(ErrorCode::kResourceExhausted, out_of_device_memory(bytes, free_bytes, total_bytes));
    }
    check(status, "allocate");
    return static_cast<std::byte*>(data);
  }
  // A program that ends may free when the driver is gone already.
  void free(std::byte* data, size_t) noexcept override { cudaFree(data); }
};

class ChosenDeviceAllocator final : public DeviceAllocator {
 public:
  explicit ChosenDeviceAllocator(int device) : device_(device) {}
  std::byte* allocate(size_t bytes) override {
    const OnDevice chosen(device_);
    return DeviceAllocator::allocate(bytes);
  }

 private:
  int device_;
};

class PinnedAllocator final : public Allocator {
 public:
  std::byte* allocate(size_t bytes) override {
    void* data = nullptr;
    check(cudaMallocHost(&data, bytes == 0 ? 1 : bytes), "allocate host memory");
    return static_cast<std::byte*>(data);
  }
  void free(std::byte* data, size_t) noexcept override { cudaFreeHost(data); }
};

CudaDevice describe_device(int index) {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index), "read a device's properties");
  return {.name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .total_bytes = properties.totalGlobalMem,
          .index = index};
}

}  // namespace

Allocator& device_allocator() {
  static DeviceAllocator allocator;
  return allocator;
}

Allocator& device_allocator(int device) {
  static std::vector<ChosenDeviceAllocator> allocators = [] {
    std::vector<ChosenDeviceAllocator> all;
    for (int i = 0; i < kMostDevices; ++i) all.emplace_back(i);
    return all;
  }();
  return allocators[static_cast<size_t>(device)];
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "ask for the current device");
  LMD_CHECK(device < kMostDevices, "device ", device);
  return device;
}

OnDevice::OnDevice(int device) : previous_(current_device()) {
  if (device != previous_) check(cudaSetDevice(device), "go to a device");
}

OnDevice::~OnDevice() { cudaSetDevice(previous_); }

Allocator& pinned_allocator() {
  static PinnedAllocator allocator;
  return allocator;
}

std::byte* Scratch::bytes(int64_t count) {
  const auto bytes = static_cast<size_t>(count);
  if (bytes > buffer_.size()) {
    buffer_ = Buffer();  // waits for what still reads it
    buffer_ = Buffer(bytes, device_allocator());
    ++version_;
  }
  return buffer_.data();
}

}  // namespace cuda

int cuda_toolkit_version() { return CUDART_VERSION; }

CudaStatus cuda_status() {
  CudaStatus found;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    cudaDriverGetVersion(&driver);
    found.problem = driver == 0 ? std::string("no GPU can be used: there is no NVIDIA driver")
                                : cat("no GPU can be used: ", cudaGetErrorString(status), " (",
                                      cudaGetErrorName(status), ")");
    return found;
  }
  for (int i = 0; i < count; ++i) {
    const CudaDevice device = cuda::describe_device(i);
    if (const std::string problem = device_problem(device); problem.empty())
      found.devices.push_back(device);
    else
      found.problem = problem;
  }
  if (count == 0) found.problem = "no GPU can be used: the driver reports none";
  if (!found.devices.empty()) found.problem.clear();
  return found;
}

}  // namespace lmdeploy
