// norm and add_norm: one block for each run of elements that are normalised together.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

template <typename T>
struct NormArgs {
  Rows<T> out;
  Rows<T> residual;  // add_norm: x is added to it, and it is what is normalised
  Rows<const T> x;
  const float* weight;
  const float* bias;  // may be null
  int64_t rows;
  int size;           // of a run
  int runs;           // of a row
  bool whole_weight;  // one weight for the row, not for each run
  bool layer;         // NormKind::kLayer
  float eps;
  float offset;
};

// Bandwidth-bound: x is read from memory once, and again from the cache. No __restrict__: out may be x.
template <int N, bool kAdd, typename T>
__global__ void norm_kernel(NormArgs<T> a) {
  __shared__ float shared[32];
  wait_for_previous_kernel();
  using Wide = Pack<T, N>;
  for (int64_t run = blockIdx.x; run < a.rows * a.runs; run += gridDim.x) {
    const int64_t t = run / a.runs;
    const int64_t begin = run % a.runs * a.size;
    const T* x = a.x.row(t) + begin;
    if constexpr (kAdd) {
      T* residual = a.residual.row(t) + begin;
      for (int i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
        const Wide more = *reinterpret_cast<const Wide*>(x + i);
        Wide sum = *reinterpret_cast<const Wide*>(residual + i);
        for (int j = 0; j < N; ++j)
          sum.values[j] = from_float<T>(to_float(sum.values[j]) + to_float(more.values[j]));
        *reinterpret_cast<Wide*>(residual + i) = sum;  // read again by this thread only
      }
      x = residual;
    }
    float mean = 0;
    if (a.layer) {
      float sum = 0;
      for (int i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
        const Wide v = *reinterpret_cast<const Wide*>(x + i);
        for (int j = 0; j < N; ++j) sum += to_float(v.values[j]);
      }
      mean = block_sum(sum, shared) / static_cast<float>(a.size);
    }
    float sum_sq = 0;
    for (int i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
      const Wide v = *reinterpret_cast<const Wide*>(x + i);
      for (int j = 0; j < N; ++j) {
        const float centred = to_float(v.values[j]) - mean;
        sum_sq = fmaf(centred, centred, sum_sq);
      }
    }
    const float scale = 1 / sqrtf(block_sum(sum_sq, shared) / static_cast<float>(a.size) + a.eps);
    T* out = a.out.row(t) + begin;
    const int64_t first_weight = a.whole_weight ? begin : 0;
    for (int i = threadIdx.x * N; i < a.size; i += blockDim.x * N) {
      Wide v = *reinterpret_cast<const Wide*>(x + i);
      for (int j = 0; j < N; ++j) {
        const int64_t w = first_weight + i + j;
        const float normed = (to_float(v.values[j]) - mean) * scale * (a.weight[w] + a.offset);
        v.values[j] = from_float<T>(normed + (a.bias == nullptr ? 0 : a.bias[w]));
      }
      *reinterpret_cast<Wide*>(out + i) = v;
    }
  }
}

// The same where a block has a thread for every N elements of a run: they stay in registers, and all that is
// read is asked for at once, what the kernel before this one does not write before it has ended.
template <int N, bool kAdd, typename T>
__global__ void short_norm_kernel(NormArgs<T> a) {
  __shared__ float shared[32];
  using Wide = Pack<T, N>;
  const int i = static_cast<int>(threadIdx.x) * N;
  const bool inside = i < a.size;
  float weights[N] = {}, biases[N] = {};
  const auto load_weights = [&](int64_t begin) {
    const int64_t w = (a.whole_weight ? begin : 0) + i;
    for (int j = 0; j < N; ++j) {
      weights[j] = a.weight[w + j] + a.offset;
      if (a.bias != nullptr) biases[j] = a.bias[w + j];
    }
  };
  const auto row_of = [&](int64_t run) { return kAdd ? run : run / a.runs; };  // add_norm: of whole rows
  const auto begin_of = [&](int64_t run) { return kAdd ? 0 : run % a.runs * a.size; };
  if (inside) {
    load_weights(begin_of(blockIdx.x));
    if constexpr (kAdd) ask_for(a.residual.row(blockIdx.x) + i);
  }
  wait_for_previous_kernel();
  for (int64_t run = blockIdx.x; run < a.rows * a.runs; run += gridDim.x) {
    const int64_t t = row_of(run), begin = begin_of(run);
    float values[N] = {};
    if (inside) {
      const Wide x = *reinterpret_cast<const Wide*>(a.x.row(t) + begin + i);
      for (int j = 0; j < N; ++j) values[j] = to_float(x.values[j]);
      if (run != blockIdx.x) load_weights(begin);
      if constexpr (kAdd) {
        auto* residual = reinterpret_cast<Wide*>(a.residual.row(t) + begin + i);
        Wide sum = *residual;
        for (int j = 0; j < N; ++j) {
          sum.values[j] = from_float<T>(to_float(sum.values[j]) + values[j]);
          values[j] = to_float(sum.values[j]);
        }
        *residual = sum;
      }
    }
    float mean = 0;
    if (a.layer) {
      float sum = 0;
      for (int j = 0; j < N; ++j) sum += values[j];
      mean = block_sum(sum, shared) / static_cast<float>(a.size);
    }
    float sum_sq = 0;
    for (int j = 0; inside && j < N; ++j) sum_sq = fmaf(values[j] - mean, values[j] - mean, sum_sq);
    const float scale = 1 / sqrtf(block_sum(sum_sq, shared) / static_cast<float>(a.size) + a.eps);
    if (!inside) continue;
    Wide out;
    for (int j = 0; j < N; ++j)
      out.values[j] = from_float<T>((values[j] - mean) * scale * weights[j] + biases[j]);
    *reinterpret_cast<Wide*>(a.out.row(t) + begin + i) = out;
  }
}

template <bool kAdd>
void run_norm(const char* op, TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
              const NormOptions& options, cudaStream_t stream) {
  if (x.dtype() != out.dtype() || residual.dtype() != out.dtype())
    throw Error(ErrorCode::kInvalidArgument,
                cat(op, ": ", x.dtype(), " to ", out.dtype(), ", expected one dtype"));
  const int64_t size = options.group > 0 ? options.group : x.cols();
  if (size == 0) return;
  with_type(out.dtype(), [&]<typename T>(Type<T>) {
    const NormArgs<T> args = {.out = rows_of<T>(out),
                              .residual = rows_of<T>(residual),
                              .x = rows_of<T>(x),
                              .weight = weight.row<float>(0),
                              .bias = options.bias ? options.bias->row<float>(0) : nullptr,
                              .rows = x.rows(),
                              .size = static_cast<int>(size),
                              .runs = static_cast<int>(x.cols() / size),
                              .whole_weight = weight.cols() != size,
                              .layer = options.kind == NormKind::kLayer,
                              .eps = options.eps,
                              .offset = options.offset};
    const bool wide = is_wide(out, size) && is_wide(residual, size) && is_wide(x, size);
    const int64_t busy = ceil_div(size, wide ? kWidth<T> : 1), warps = ceil_div(busy, 32);
    const auto threads = [&](int64_t most) { return static_cast<int>(std::min(most, warps * 32)); };
    const auto blocks = static_cast<unsigned>(std::min<int64_t>(args.rows * args.runs, int64_t{1} << 30));
    if (wide && busy <= 1024)
      launch(short_norm_kernel<kWidth<T>, kAdd, T>, blocks, threads(1024), 0, stream, args);
    else if (wide)
      launch(norm_kernel<kWidth<T>, kAdd, T>, blocks, threads(512), 0, stream, args);
    else
      launch(norm_kernel<1, kAdd, T>, blocks, threads(512), 0, stream, args);
  });
  check_launch(op, out.shape());
}

}  // namespace

void CudaKernels::do_norm(TensorView out, ConstTensorView x, ConstTensorView weight,
                          const NormOptions& options) const {
  run_norm<false>("norm", out, out, x, weight, options, stream_);
}

void CudaKernels::do_add_norm(TensorView out, TensorView residual, ConstTensorView x, ConstTensorView weight,
                              const NormOptions& options) const {
  run_norm<true>("add_norm", out, residual, x, weight, options, stream_);
}

}  // namespace lmdeploy::cuda
