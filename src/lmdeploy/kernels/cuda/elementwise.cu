// The ops that work element by element. Bandwidth-bound: each element is read and written once.
#include "lmdeploy/kernels/cuda/activated.cuh"
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;

// out[t, i] = op(a[t, i], b[t, i], t). No __restrict__: out may be a or b.
template <int N, typename T, typename Op>
__global__ void map_kernel(Rows<T> out, Rows<const T> a, Rows<const T> b, int64_t rows, int64_t cols, Op op) {
  wait_for_previous_kernel();
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * N;
  if (i >= cols) return;
  for (int64_t t = blockIdx.y; t < rows; t += gridDim.y) {
    const auto x = *reinterpret_cast<const Pack<T, N>*>(a.row(t) + i);
    Pack<T, N> y = x, result;
    if constexpr (Op::kBinary) y = *reinterpret_cast<const Pack<T, N>*>(b.row(t) + i);
    for (int j = 0; j < N; ++j)
      result.values[j] = from_float<T>(op(to_float(x.values[j]), to_float(y.values[j]), t));
    *reinterpret_cast<Pack<T, N>*>(out.row(t) + i) = result;
  }
}

template <typename Op>
void map(const char* name, TensorView out, ConstTensorView a, ConstTensorView b, const Op& op,
         cudaStream_t stream) {
  if (a.dtype() != out.dtype() || b.dtype() != out.dtype())
    throw Error(ErrorCode::kInvalidArgument,
                cat(name, ": ", a.dtype(), " and ", b.dtype(), " to ", out.dtype(), ", expected one dtype"));
  const int64_t rows = out.rows(), cols = out.cols();
  if (cols == 0) return;
  with_type(out.dtype(), [&]<typename T>(Type<T>) {
    const bool wide = is_wide(out, cols) && is_wide(a, cols) && is_wide(b, cols);
    const int64_t per_block = kThreads * (wide ? kWidth<T> : 1);
    const dim3 grid(static_cast<unsigned>(ceil_div(cols, per_block)), grid_rows(rows));
    const auto run = [&]<int N>(std::integral_constant<int, N>) {
      launch(map_kernel<N, T, Op>, grid, kThreads, 0, stream, rows_of<T>(out), rows_of<T>(a), rows_of<T>(b),
             rows, cols, op);
    };
    if (wide)
      run(std::integral_constant<int, kWidth<T>>());
    else
      run(std::integral_constant<int, 1>());
  });
  check_launch(name, out.shape());
}

// NaN stays NaN.
__device__ float limited(float x, float least, float most) { return x < least ? least : x > most ? most : x; }

struct Activate {
  static constexpr bool kBinary = false;
  Activation activation;
  __device__ float operator()(float x, float, int64_t) const { return activated(x, activation); }
};
struct Glu {
  static constexpr bool kBinary = true;
  Activation activation;
  __device__ float operator()(float x, float up, int64_t) const { return activated(x, activation) * up; }
};
struct ClampedGlu {
  static constexpr bool kBinary = true;
  float limit;
  __device__ float operator()(float x, float up, int64_t) const {
    const float gate = x > limit ? limit : x;
    return (limited(up, -limit, limit) + 1) * (gate / (1 + expf(-1.702f * gate)));
  }
};
struct Add {
  static constexpr bool kBinary = true;
  __device__ float operator()(float a, float b, int64_t) const { return a + b; }
};
struct Copy {
  static constexpr bool kBinary = false;
  __device__ float operator()(float x, float, int64_t) const { return x; }
};
struct Scale {
  static constexpr bool kBinary = false;
  float factor;
  __device__ float operator()(float x, float, int64_t) const { return x * factor; }
};
struct ScaleRows {
  static constexpr bool kBinary = false;
  const float* factors;
  __device__ float operator()(float x, float, int64_t t) const { return x * factors[t]; }
};
struct GateRows {
  static constexpr bool kBinary = false;
  const std::byte* gate;
  int64_t stride_bytes;
  DType dtype;
  __device__ float operator()(float x, float, int64_t t) const {
    return x / (1 + expf(-load_any(gate + t * stride_bytes, dtype, 0)));
  }
};
struct Clamp {
  static constexpr bool kBinary = false;
  float limit;
  __device__ float operator()(float x, float, int64_t) const { return limited(x, -limit, limit); }
};
struct SoftCap {
  static constexpr bool kBinary = false;
  float cap;
  __device__ float operator()(float x, float, int64_t) const { return cap * tanhf(x / cap); }
};

}  // namespace

void CudaKernels::do_glu(TensorView out, ConstTensorView x, Activation activation) const {
  map("glu", out, x.slice_cols(0, out.cols()), x.slice_cols(out.cols(), out.cols()), Glu{activation},
      stream_);
}

void CudaKernels::do_clamped_glu(TensorView out, ConstTensorView x, float limit) const {
  map("clamped_glu", out, x.slice_cols(0, out.cols()), x.slice_cols(out.cols(), out.cols()),
      ClampedGlu{limit}, stream_);
}

void CudaKernels::do_activate(TensorView out, ConstTensorView x, Activation activation) const {
  map("activate", out, x, x, Activate{activation}, stream_);
}

void CudaKernels::do_add(TensorView out, ConstTensorView a, ConstTensorView b) const {
  map("add", out, a, b, Add{}, stream_);
}

void CudaKernels::do_copy(TensorView out, ConstTensorView x) const {
  map("copy", out, x, x, Copy{}, stream_);
}

void CudaKernels::do_scale(TensorView x, float factor) const {
  map("scale", x, x, x, Scale{factor}, stream_);
}

void CudaKernels::do_scale_rows(TensorView x, ConstTensorView factors) const {
  map("scale_rows", x, x, x, ScaleRows{factors.row<float>(0)}, stream_);
}

void CudaKernels::do_gate_rows(TensorView x, ConstTensorView gate) const {
  map("gate_rows", x, x, x, GateRows{gate.data(), gate.row_stride_bytes(), gate.dtype()}, stream_);
}

void CudaKernels::do_clamp(TensorView x, float limit) const { map("clamp", x, x, x, Clamp{limit}, stream_); }

void CudaKernels::do_soft_cap(TensorView x, float cap) const {
  map("soft_cap", x, x, x, SoftCap{cap}, stream_);
}

}  // namespace lmdeploy::cuda
