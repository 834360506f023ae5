// The rows of x in the column order of the weights that they are multiplied with.
#include <algorithm>

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/expert_weights.h"
#include "lmdeploy/kernels/cuda/packed_weight.h"
#include "lmdeploy/kernels/cuda/ragged.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;

struct OrderArgs {
  std::byte* out;  // [tokens, cols]
  const std::byte* x;
  int64_t x_stride_bytes;
  int tokens, cols;
  const int32_t* start;                 // [count + 1]: each expert's rows; null: one order for all
  int count;                            // experts
  const int32_t* orders[kMostExperts];  // null: as they are
};

// out[t, k] = x[t, order[k]]
template <typename T>
__global__ void order_kernel(const __grid_constant__ OrderArgs a) {
  const int k = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  const int first = a.start == nullptr ? 0 : a.start[0],
            end = a.start == nullptr ? a.tokens : a.start[a.count];
  for (int t = first + static_cast<int>(blockIdx.y); t < end; t += static_cast<int>(gridDim.y)) {
    const int owner = a.start == nullptr ? 0 : find_owner(a.count, t, [&](int e) { return a.start[e]; });
    if (k >= a.cols) continue;
    const int32_t* order = a.orders[owner];
    const auto* x = reinterpret_cast<const T*>(a.x + t * a.x_stride_bytes);
    reinterpret_cast<T*>(a.out)[int64_t{t} * a.cols + k] = x[order == nullptr ? k : order[k]];
  }
}

void run_order(const OrderArgs& args, DType dtype, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(args.cols, kThreads)), grid_rows(args.tokens));
  with_type(dtype, [&]<typename T>(Type<T>) { order_kernel<T><<<grid, kThreads, 0, stream>>>(args); });
  check_launch("linear's column order", {args.tokens, args.cols});
}

OrderArgs order_args(ConstTensorView x, Scratch& scratch) {
  OrderArgs args = {};
  args.out = scratch.bytes(x.rows() * row_bytes(x.dtype(), x.cols()));
  args.x = x.data();
  args.x_stride_bytes = x.row_stride_bytes();
  args.tokens = static_cast<int>(x.rows());
  args.cols = static_cast<int>(x.cols());
  return args;
}

}  // namespace

ConstTensorView CudaKernels::in_column_order(ConstTensorView x, const PackedWeight& weight) const {
  if (weight.column_order().empty()) return x;
  OrderArgs args = order_args(x, ordered_x_);
  args.orders[0] = cuda_weight("linear", weight).device_order();
  run_order(args, x.dtype(), stream_);
  return {args.out, x.dtype(), {x.rows(), x.cols()}};
}

// One call for each run of experts.
ConstTensorView CudaKernels::in_column_order(ConstTensorView x, std::span<const PackedWeight* const> experts,
                                             ConstTensorView expert_start) const {
  const auto in_order = [](const PackedWeight* weight) { return weight->column_order().empty(); };
  if (std::all_of(experts.begin(), experts.end(), in_order)) return x;
  OrderArgs args = order_args(x, ordered_x_);
  for (size_t first = 0; first < experts.size(); first += kMostExperts) {
    const auto run = experts.subspan(first, std::min<size_t>(kMostExperts, experts.size() - first));
    for (size_t e = 0; e < run.size(); ++e)
      args.orders[e] = cuda_weight("expert_linear", *run[e]).device_order();
    args.start = expert_start.row<int32_t>(0) + first;
    args.count = static_cast<int>(run.size());
    run_order(args, x.dtype(), stream_);
  }
  return {args.out, x.dtype(), {x.rows(), x.cols()}};
}

}  // namespace lmdeploy::cuda
