// Measures the ceilings of a device.
#include "lmdeploy/kernels/cuda/device_probe.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/blas.h"
#include "lmdeploy/kernels/cuda/device.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLoads = 8;  // of 16 bytes in flight in each thread

/// Random bits under `mask`, the others as in `base`.
struct Pattern {
  uint32_t base, mask;
};
constexpr Pattern kBf16 = {0x3d803d80u, 0x81ff81ffu};  // two numbers between 1/16 and 1, of either sign
constexpr Pattern kE4m3 = {0x20202020u, 0x9f9f9f9fu};  // four between 1/8 and 2

__global__ void fill_kernel(uint32_t* data, int64_t count, Pattern pattern) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    uint64_t x = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15ull;  // splitmix64
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    data[i] = pattern.base | (static_cast<uint32_t>(x >> 32) & pattern.mask);
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

__global__ void idle_kernel() { wait_for_previous_kernel(); }

unsigned num_multiprocessors() {
  int count = 0;
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, current_device()),
        "count multiprocessors");
  return static_cast<unsigned>(count);
}

/// Launches as one graph.
class Graph {
 public:
  /// `launches` gets the stream to launch in.
  explicit Graph(const std::function<void(cudaStream_t)>& launches) {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream), "make a stream");
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed), "record a graph");
    launches(stream);
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream, &graph), "record a graph");
    check(cudaGraphInstantiate(&executable_, graph, 0), "make a graph");
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
  ~Graph() { cudaGraphExecDestroy(executable_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void run() const { check(cudaGraphLaunch(executable_, nullptr), "run a graph"); }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

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

Buffer random_buffer(int64_t bytes, Pattern pattern = kBf16) {
  Buffer buffer(static_cast<size_t>(bytes), device_allocator());
  fill_kernel<<<2048, kThreads>>>(reinterpret_cast<uint32_t*>(buffer.data()), bytes / 4, pattern);
  check_launch("fill", {bytes});
  return buffer;
}

// Operations a second of a square product, where the library has one.
std::optional<double> measure_product(DType type, Pattern numbers) {
  constexpr int64_t kSize = 8192;
  const int64_t bytes = kSize * kSize * block_bytes(type);
  const Buffer x = random_buffer(bytes, numbers), weight = random_buffer(bytes, numbers),
               out = random_buffer(kSize * kSize * 2);
  Blas blas;
  const MatmulShape shape = {.tokens = kSize,
                             .rows = kSize,
                             .cols = kSize,
                             .x_stride = kSize,
                             .out_stride = kSize,
                             .type = type,
                             .out_type = DType::kBF16};
  const auto multiply = [&] {
    return blas.multiply(shape, out.data(), x.data(), weight.data(), /*stream=*/nullptr);
  };
  if (!multiply()) return std::nullopt;
  return 2.0 * kSize * kSize * kSize / median_seconds([&] { multiply(); });
}

}  // namespace

double measure_read_bandwidth(int64_t bytes) {
  constexpr int64_t kBytes = int64_t{4} << 30, kMostReads = 64;
  const Buffer data = random_buffer(kBytes), out(64, device_allocator());
  const unsigned blocks = num_multiprocessors() * 8;
  const int64_t reads = std::clamp<int64_t>(kBytes / bytes, 1, kMostReads);
  const Graph graph([&](cudaStream_t stream) {
    for (int64_t i = 0; i < reads; ++i) {
      read_kernel<<<blocks, kThreads, 0, stream>>>(reinterpret_cast<const uint4*>(data.data() + i * bytes),
                                                   bytes / 16, reinterpret_cast<uint32_t*>(out.data()));
      check_launch("read", {bytes});
    }
  });
  return static_cast<double>(reads * bytes) / median_seconds([&] { graph.run(); });
}

double measure_copy_bandwidth() {
  constexpr size_t kBytes = size_t{2} << 30;
  const Buffer from = random_buffer(kBytes), to = random_buffer(kBytes);
  const double seconds = median_seconds([&] {
    check(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, nullptr), "copy");
  });
  return 2.0 * kBytes / seconds;
}

double measure_bf16_product() {
  const std::optional<double> rate = measure_product(DType::kBF16, kBf16);
  if (!rate) throw Error(ErrorCode::kUnsupported, "cuBLASLt has no product in bf16");
  return *rate;
}

std::optional<double> measure_fp8_product() { return measure_product(DType::kF8E4M3, kE4m3); }

double measure_graph_gap(bool overlap) {
  constexpr int kKernels = 400, kIdleThreads = 128;
  const unsigned blocks = num_multiprocessors();
  const Graph graph([&](cudaStream_t stream) {
    for (int i = 0; i < kKernels; ++i) {
      if (overlap) {
        launch(idle_kernel, dim3(blocks), kIdleThreads, /*shared_bytes=*/0, stream);
      } else {
        idle_kernel<<<blocks, kIdleThreads, 0, stream>>>();
      }
      check_launch("idle", {kKernels});
    }
  });
  return median_seconds([&] { graph.run(); }) / kKernels;
}

void wait_for_device() { check(cudaDeviceSynchronize(), "wait for the device"); }

}  // namespace lmdeploy::cuda
