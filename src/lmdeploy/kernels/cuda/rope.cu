// rope_table and rope.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 128;

// In f64: f32 angles of far positions would be off by more than a bf16 step. A few thousand of them a step.
template <typename T>
__global__ void rope_table_kernel(Rows<T> table, const int32_t* positions, const double* inv_freq,
                                  const double* scale, const int32_t* table_idx, int64_t num_tables, int half,
                                  int64_t tokens) {
  const int j = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (j >= half) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t s = table_idx[t];
    double sine = nan(""), cosine = nan(""), size = 1;
    if (s >= 0 && s < num_tables) {
      sincos(positions[t] * inv_freq[s * half + j], &sine, &cosine);
      size = scale[s];
    }
    table.row(t)[j] = from_float<T>(static_cast<float>(cosine * size));
    table.row(t)[half + j] = from_float<T>(static_cast<float>(sine * size));
  }
}

template <typename T, typename Table>
__global__ void rope_kernel(Rows<T> x, Rows<const Table> table, int64_t tokens, int heads, int half,
                            RopeOptions o) {
  wait_for_previous_kernel();
  const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= heads * half) return;
  const int head = at / half, j = at % half;
  const int64_t first = head * o.head_dim + o.first;
  const int64_t at_a = first + (o.interleaved ? 2 * j : j),
                at_b = first + (o.interleaved ? 2 * j + 1 : half + j);
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    T* row = x.row(t);
    const float cosine = to_float(table.row(t)[j]), sine = to_float(table.row(t)[half + j]);
    const float a = to_float(row[at_a]), b = to_float(row[at_b]);
    row[at_a] = from_float<T>(a * cosine - b * sine);
    row[at_b] = from_float<T>(b * cosine + a * sine);
  }
}

}  // namespace

void CudaKernels::do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                                ConstTensorView scale, ConstTensorView table_idx) const {
  const int64_t half = inv_freq.cols();
  if (half == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(half, kThreads)), grid_rows(table.rows()));
  with_type(table.dtype(), [&]<typename T>(Type<T>) {
    rope_table_kernel<<<grid, kThreads, 0, stream_>>>(
        rows_of<T>(table), positions.row<int32_t>(0), inv_freq.row<double>(0), scale.row<double>(0),
        table_idx.row<int32_t>(0), inv_freq.dim(0), static_cast<int>(half), table.rows());
  });
  check_launch("rope_table", table.shape());
}

void CudaKernels::do_rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  const int64_t half = table.cols() / 2, heads = x.cols() / options.head_dim;
  const dim3 grid(static_cast<unsigned>(ceil_div(heads * half, kThreads)), grid_rows(x.rows()));
  const auto run = [&]<typename T, typename Table>(Type<T>, Type<Table>) {
    launch(rope_kernel<T, Table>, grid, kThreads, 0, stream_, rows_of<T>(x), rows_of<Table>(table), x.rows(),
           static_cast<int>(heads), static_cast<int>(half), options);
  };
  with_type(x.dtype(), [&]<typename T>(Type<T> type) {
    if (table.dtype() == x.dtype())
      run(type, type);
    else
      run(type, Type<float>());  // the wide dtype
  });
  check_launch("rope", x.shape());
}

}  // namespace lmdeploy::cuda
