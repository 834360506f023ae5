// Measures the two ceilings of a device.
#include "lmdeploy/kernels/cuda/device_probe.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "lmdeploy/kernels/cuda/blas.h"
#include "lmdeploy/kernels/cuda/device.h"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;  // of 16 bytes in flight in each thread

__global__ void fill_kernel(uint32_t* data, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    uint64_t x = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15ull;  // splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    // Two bf16 numbers between 1/16 and 1, of either sign.
    const auto bits = static_cast<uint32_t>(x >> 32);
    data[i] = 0x3d803d80u | (bits & 0x81ff81ffu);
  }
}

// A sum that nobody needs keeps the loads.
__global__ void read_kernel(const uint4* data, int64_t count, uint32_t* out) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  uint32_t sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step * kLoads) {
    uint4 loaded[kLoads];
    for (int j = 0; j < kLoads; ++j) loaded[j] = i + j * step < count ? __ldcs(data + i + j * step) : uint4{};
    for (const uint4& v : loaded) sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345678u) *out = sum;
}

// Median seconds of a run.
double median_seconds(const std::function<void()>& run) {
  constexpr int kWarmUps = 3, kRuns = 15;
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "make an event");
  check(cudaEventCreate(&end), "make an event");
  std::vector<float> times;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    check(cudaEventRecord(begin), "record an event");
    run();
    check(cudaEventRecord(end), "record an event");
    check(cudaEventSynchronize(end), "wait for an event");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "read a time");
    if (i >= kWarmUps) times.push_back(ms);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2] / 1e3;
}

Buffer random_buffer(int64_t bytes) {
  Buffer buffer(static_cast<size_t>(bytes), device_allocator());
  fill_kernel<<<2048, kThreads>>>(reinterpret_cast<uint32_t*>(buffer.data()), bytes / 4);
  check_launch("fill", {bytes});
  return buffer;
}

}  // namespace

double measure_read_bandwidth() {
  constexpr int64_t kBytes = int64_t{4} << 30;
  const Buffer data = random_buffer(kBytes), out(64, device_allocator());
  int sms = 0;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "count multiprocessors");
  const double seconds = median_seconds([&] {
    read_kernel<<<static_cast<unsigned>(sms * 8), kThreads>>>(
        reinterpret_cast<const uint4*>(data.data()), kBytes / 16, reinterpret_cast<uint32_t*>(out.data()));
    check_launch("read", {kBytes});
  });
  return static_cast<double>(kBytes) / seconds;
}

double measure_bf16_product() {
  constexpr int64_t kSize = 8192;
  const Buffer x = random_buffer(kSize * kSize * 2), weight = random_buffer(kSize * kSize * 2),
               out = random_buffer(kSize * kSize * 2);
  Blas blas;
  const MatmulShape shape = {.tokens = kSize,
                             .rows = kSize,
                             .cols = kSize,
                             .x_stride = kSize,
                             .out_stride = kSize,
                             .type = DType::kBF16,
                             .out_type = DType::kBF16};
  const double seconds =
      median_seconds([&] { blas.multiply(shape, out.data(), x.data(), weight.data(), nullptr); });
  return 2.0 * kSize * kSize * kSize / seconds;
}

void wait_for_device() { check(cudaDeviceSynchronize(), "wait for the device"); }

}  // namespace lmdeploy::cuda
