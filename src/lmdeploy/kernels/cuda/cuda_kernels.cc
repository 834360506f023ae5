// Making the back end, and copies between host and device.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"

namespace lmdeploy {
namespace cuda {

CudaKernels::CudaKernels(std::shared_ptr<ThreadPool> threads, DType activation_dtype,
                         const CudaOptions& options)
    : threads_(std::move(threads)), dtype_(activation_dtype), options_(options) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
  const auto read = [this](int& value, cudaDeviceAttr attribute) {
    check(cudaDeviceGetAttribute(&value, attribute, options_.device), "read a device's limits");
  };
  device_.code = device_code();
  read(device_.num_sms, cudaDevAttrMultiProcessorCount);
  read(device_.shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check(cudaEventCreateWithFlags(&draw_space_.done, cudaEventDisableTiming), "make an event");
  arrivals_ = Buffer(kArrivals * sizeof(int32_t), device_allocator());
  check(cudaMemset(arrivals_.data(), 0, arrivals_.size()), "clear counters");
}

CudaKernels::~CudaKernels() {
  cudaStreamSynchronize(stream_);
  cudaEventDestroy(draw_space_.done);
  cudaStreamDestroy(stream_);
}

std::string CudaKernels::name() const { return cat("cuda-", dtype_); }

size_t CudaKernels::available_memory() const {
  const OnDevice own(options_.device);
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "read the free memory");
  return free_bytes;
}

// What is large is not part of a step: the call returns when the bytes have left the host's memory, which may
// be when the stream has come to them.
void CudaKernels::do_upload(std::byte* device, const std::byte* host, size_t bytes) const {
  if (bytes <= UploadRing::kMostBytes) return uploads_.copy(device, host, bytes, stream_);
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "copy to the device");
}

void CudaKernels::do_download(std::byte* host, const std::byte* device, size_t bytes) const {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "copy from the device");
  check(cudaStreamSynchronize(stream_), "wait for the device");
}

}  // namespace cuda

std::unique_ptr<Kernels> make_cuda_kernels(std::shared_ptr<ThreadPool> threads, DType activation_dtype,
                                           const CudaOptions& options) {
  const CudaStatus status = cuda_status();
  if (status.devices.empty()) throw Error(ErrorCode::kUnsupported, status.problem);
  if (activation_dtype != DType::kF32 && activation_dtype != DType::kF16 && activation_dtype != DType::kBF16)
    throw Error(ErrorCode::kUnsupported,
                cat("the CUDA back end computes in f16, bf16 or f32, not in ", activation_dtype));
  const auto is_usable = [&](const CudaDevice& device) { return device.index == options.device; };
  if (options.device >= cuda::kMostDevices || std::ranges::none_of(status.devices, is_usable))
    throw Error(ErrorCode::kUnsupported, cat("GPU ", options.device, " cannot be used: there are ",
                                             status.devices.size(), " that can"));
  const cuda::OnDevice own(options.device);
  return std::make_unique<cuda::CudaKernels>(std::move(threads), activation_dtype, options);
}

}  // namespace lmdeploy
