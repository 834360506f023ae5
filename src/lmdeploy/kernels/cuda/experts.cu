// The ops of mixture-of-experts layers but expert_linear (linear.cu).
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
constexpr double kLowest = -1.7976931348623157e308;

struct RouteArgs {
  const std::byte* logits;
  int64_t logits_stride_bytes;
  DType logits_dtype;
  const float* correction;  // may be null
  int32_t* ids;
  int64_t ids_stride;
  std::byte* weights;
  int64_t weights_stride_bytes;
  DType weights_dtype;
  int experts, top_k;
  RouteOptions o;
};

__device__ double warp_sum_f64(double value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}

// softmax of values[0 .. n) in place, by a warp.
__device__ void softmax(double* values, int n, int lane) {
  double max = -HUGE_VAL, sum = 0;
  for (int i = lane; i < n; i += 32) max = fmax(max, values[i]);
  for (int offset = 16; offset > 0; offset /= 2) max = fmax(max, __shfl_xor_sync(~0u, max, offset));
  for (int i = lane; i < n; i += 32) sum += values[i] = exp(values[i] - max);
  sum = warp_sum_f64(sum);
  for (int i = lane; i < n; i += 32) values[i] /= sum;
  __syncwarp();
}

// A place in the order by falling value, of equal ones the lower index first.
struct Rank {
  double value = HUGE_VAL;
  int at = -1;
  __device__ bool before(double other, int other_at) const {
    return value > other || (value == other && at < other_at);
  }
};

// The first place after `last`: calls in turn walk through the order. No value is NaN.
__device__ Rank next_largest(const double* values, int n, Rank last, int lane) {
  Rank best = {-HUGE_VAL, n};
  for (int i = lane; i < n; i += 32)
    if (last.before(values[i], i) && !best.before(values[i], i)) best = {values[i], i};
  for (int offset = 16; offset > 0; offset /= 2) {
    const Rank other = {__shfl_xor_sync(~0u, best.value, offset), __shfl_xor_sync(~0u, best.at, offset)};
    if (other.before(best.value, best.at)) best = other;
  }
  return best;
}

// Choice scores outside the best groups become -inf. `groups`: a number for each group.
__device__ void keep_best_groups(double* choice, double* groups, const RouteArgs& a, int lane) {
  const int num_groups = static_cast<int>(a.o.num_groups), size = a.experts / num_groups;
  for (int g = 0; g < num_groups; ++g) {
    double score = 0;
    Rank best;
    for (int n = 0; n < a.o.group_best; ++n) {
      best = next_largest(choice + g * size, size, best, lane);
      score += best.value;
    }
    if (lane == 0) groups[g] = score;
  }
  __syncwarp();
  Rank last;
  for (int n = 0; n < a.o.groups_kept; ++n) last = next_largest(groups, num_groups, last, lane);
  for (int e = lane; e < a.experts; e += 32)
    if (last.before(groups[e / size], e / size)) choice[e] = -HUGE_VAL;
  __syncwarp();
}

// A warp for each token, in f64 as the reference: near ties must not fall otherwise.
__global__ void route_kernel(RouteArgs a) {
  extern __shared__ double memory[];
  double* scores = memory;                   // [experts]
  double* choice = scores + a.experts;       // [experts]
  double* groups = choice + a.experts;       // [num_groups]
  double* chosen = groups + a.o.num_groups;  // [top_k]
  const int64_t t = blockIdx.x;
  const int lane = static_cast<int>(threadIdx.x);
  for (int e = lane; e < a.experts; e += 32) {
    const double logit = load_any(a.logits + t * a.logits_stride_bytes, a.logits_dtype, e);
    scores[e] = a.o.sigmoid && !a.o.softmax_of_chosen ? 1 / (1 + exp(-logit)) : logit;
  }
  __syncwarp();
  if (!a.o.sigmoid && !a.o.softmax_of_chosen) softmax(scores, a.experts, lane);
  for (int e = lane; e < a.experts; e += 32) {
    const double score = scores[e] + (a.correction == nullptr ? 0 : a.correction[e]);
    choice[e] = score > kLowest ? score : kLowest;  // a NaN or -inf can still be chosen
  }
  __syncwarp();
  if (a.o.groups_kept < a.o.num_groups) keep_best_groups(choice, groups, a, lane);
  Rank best;
  for (int j = 0; j < a.top_k; ++j) {
    best = next_largest(choice, a.experts, best, lane);
    if (lane == 0) a.ids[t * a.ids_stride + j] = best.at, chosen[j] = scores[best.at];
  }
  __syncwarp();
  if (a.o.softmax_of_chosen) softmax(chosen, a.top_k, lane);
  double norm = 1;
  if (a.o.renormalize) {
    double sum = 0;  // in order, as the reference
    for (int j = 0; j < a.top_k; ++j)
      sum += a.o.norm_p == 1 ? fabs(chosen[j]) : pow(fabs(chosen[j]), static_cast<double>(a.o.norm_p));
    norm = (a.o.norm_p == 1 ? sum : pow(sum, 1 / static_cast<double>(a.o.norm_p))) + a.o.norm_eps;
  }
  for (int j = lane; j < a.top_k; j += 32)
    store_any(a.weights + t * a.weights_stride_bytes, a.weights_dtype, j,
              static_cast<float>(chosen[j] / norm * a.o.scale));
}

struct SortArgs {
  const int32_t* ids;
  int64_t ids_stride;
  int32_t* expert_start;
  int32_t* row_tokens;
  int32_t* pair_rows;
  int64_t pair_stride;
  int top_k;
  int pairs;
};

__device__ int block_count(int value, int* shared) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  int total = 0;
  for (int w = 0; w < kThreads / 32; ++w) total += shared[w];
  __syncthreads();
  return total;
}

// A block for each expert, and one for the end: counts the pairs of experts before it, then numbers its own
// in order.
__global__ void sort_kernel(SortArgs a) {
  __shared__ int shared[kThreads / 32];
  const int expert = static_cast<int>(blockIdx.x), tid = static_cast<int>(threadIdx.x);
  const auto id_of = [&](int pair) { return a.ids[pair / a.top_k * a.ids_stride + pair % a.top_k]; };
  int before = 0;
  for (int pair = tid; pair < a.pairs; pair += kThreads) before += id_of(pair) < expert ? 1 : 0;
  int next = block_count(before, shared);
  if (tid == 0) a.expert_start[expert] = next;
  if (expert + 1 == static_cast<int>(gridDim.x)) return;
  for (int first = 0; first < a.pairs; first += kThreads) {
    const int pair = first + tid;
    const bool mine = pair < a.pairs && id_of(pair) == expert;
    const unsigned lanes = __ballot_sync(~0u, mine);
    if (tid % 32 == 0) shared[tid / 32] = __popc(lanes);
    __syncthreads();
    int row = next + __popc(lanes & ((1u << tid % 32) - 1));
    for (int w = 0; w < kThreads / 32; ++w) {
      if (w < tid / 32) row += shared[w];
      next += shared[w];
    }
    __syncthreads();
    if (!mine) continue;
    a.row_tokens[row] = pair / a.top_k;
    a.pair_rows[pair / a.top_k * a.pair_stride + pair % a.top_k] = row;
  }
}

template <typename T>
__global__ void combine_kernel(Rows<T> out, Rows<const T> x, Rows<const T> weights,
                               Rows<const int32_t> pair_rows, int64_t tokens, int64_t cols, int top_k,
                               int64_t x_rows) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= cols) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    float sum = 0;
    for (int j = 0; j < top_k; ++j) {
      const int64_t row = pair_rows.row(t)[j];
      const float value = row >= 0 && row < x_rows ? to_float(x.row(row)[i]) : nanf("");
      sum = fmaf(to_float(weights.row(t)[j]), value, sum);
    }
    out.row(t)[i] = from_float<T>(sum);
  }
}

}  // namespace

void CudaKernels::do_route(TensorView ids, TensorView weights, ConstTensorView logits,
                           std::optional<ConstTensorView> correction, const RouteOptions& options) const {
  const RouteArgs args = {.logits = logits.data(),
                          .logits_stride_bytes = logits.row_stride_bytes(),
                          .logits_dtype = logits.dtype(),
                          .correction = correction ? correction->row<float>(0) : nullptr,
                          .ids = ids.row<int32_t>(0),
                          .ids_stride = ids.row_stride_bytes() / 4,
                          .weights = weights.data(),
                          .weights_stride_bytes = weights.row_stride_bytes(),
                          .weights_dtype = weights.dtype(),
                          .experts = static_cast<int>(logits.cols()),
                          .top_k = static_cast<int>(ids.cols()),
                          .o = options};
  const int64_t doubles = 2 * logits.cols() + options.num_groups + ids.cols();
  if (doubles * 8 > 48 * 1024)
    throw Error(ErrorCode::kUnsupported,
                cat("route: ", logits.cols(), " experts, the CUDA back end takes 2000"));
  route_kernel<<<static_cast<unsigned>(logits.rows()), 32, static_cast<size_t>(doubles) * 8, stream_>>>(args);
  check_launch("route", logits.shape());
}

void CudaKernels::do_sort_by_expert(TensorView expert_start, TensorView row_tokens, TensorView pair_rows,
                                    ConstTensorView ids) const {
  const SortArgs args = {.ids = ids.row<int32_t>(0),
                         .ids_stride = ids.row_stride_bytes() / 4,
                         .expert_start = expert_start.row<int32_t>(0),
                         .row_tokens = row_tokens.row<int32_t>(0),
                         .pair_rows = pair_rows.row<int32_t>(0),
                         .pair_stride = pair_rows.row_stride_bytes() / 4,
                         .top_k = static_cast<int>(ids.cols()),
                         .pairs = static_cast<int>(ids.rows() * ids.cols())};
  sort_kernel<<<static_cast<unsigned>(expert_start.cols()), kThreads, 0, stream_>>>(args);
  check_launch("sort_by_expert", ids.shape());
}

void CudaKernels::do_combine_experts(TensorView out, ConstTensorView x, ConstTensorView weights,
                                     ConstTensorView pair_rows) const {
  if (x.dtype() != out.dtype() || weights.dtype() != out.dtype())
    throw Error(ErrorCode::kInvalidArgument, cat("combine_experts: ", x.dtype(), " and ", weights.dtype(),
                                                 " to ", out.dtype(), ", expected one dtype"));
  const dim3 grid(static_cast<unsigned>(ceil_div(out.cols(), kThreads)), grid_rows(out.rows()));
  with_type(out.dtype(), [&]<typename T>(Type<T>) {
    combine_kernel<<<grid, kThreads, 0, stream_>>>(rows_of<T>(out), rows_of<T>(x), rows_of<T>(weights),
                                                   rows_of<int32_t>(pair_rows), out.rows(), out.cols(),
                                                   static_cast<int>(weights.cols()), x.rows());
  });
  check_launch("combine_experts", out.shape());
}

}  // namespace lmdeploy::cuda
