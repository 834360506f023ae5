// linear and expert_linear: cuBLASLt where operands allow it, else tiles of fused multiply-adds in f32.
#include <algorithm>

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/packed_weight.h"
#include "lmdeploy/kernels/cuda/quant.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTileRows = 64;   // outputs of a tile
constexpr int kTileDepth = 32;  // columns that are multiplied between two barriers
constexpr int kMostExperts = 512;
/// Up to that many tokens, quantised weights are read as they are; above, once into 16 bits for cuBLASLt.
constexpr int64_t kMostTokensOfTiles = 64;

struct TileArgs {
  const std::byte* x;
  int64_t x_stride_bytes;
  DType x_dtype;
  bool x_wide;
  std::byte* out;
  int64_t out_stride_bytes;
  DType out_dtype;
  const float* bias;    // may be null
  int64_t bias_stride;  // from one expert's to the next one's
  int64_t tokens;
  int rows, cols;
  int64_t weight_row_bytes;
  bool weight_wide;
  const int32_t* expert_start;  // null: one weight for all tokens
  int first_expert, num_experts;
  const std::byte* weights[kMostExperts];  // null: this expert is another call's
};

struct TileTokens {
  int expert;
  int64_t begin, end;  // at most a tile's tokens; empty where the tile has none
};

// Expert e's tiles are floor(start[e] / kTokens) + e and those after it: enough for its rows, and no other's.
template <int kTokens>
__device__ TileTokens find_tokens(const TileArgs& a) {
  const int tile = static_cast<int>(blockIdx.y);
  if (a.expert_start == nullptr) return {0, int64_t{tile} * kTokens, a.tokens};
  const int32_t* start = a.expert_start + a.first_expert;
  const auto first_tile = [&](int e) { return start[e] / kTokens - start[0] / kTokens + e; };
  int low = 0, high = a.num_experts - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (first_tile(middle) <= tile)
      low = middle;
    else
      high = middle - 1;
  }
  return {low, start[low] + int64_t{tile - first_tile(low)} * kTokens, start[low + 1]};
}

// Sums run over the columns in order, whatever the batch: a row's bits depend on nothing else.
template <typename W, int kTokens>
__global__ __launch_bounds__(kThreads) void tile_kernel(const __grid_constant__ TileArgs a) {
  constexpr int kPerThread = kTokens / 16;
  __shared__ float x_tile[kTileDepth][kTokens + 4], w_tile[kTileDepth][kTileRows + 4];
  const TileTokens tokens = find_tokens<kTokens>(a);
  const std::byte* weight = a.weights[tokens.expert];
  if (tokens.begin >= tokens.end || weight == nullptr) return;
  const int tid = static_cast<int>(threadIdx.x), first_row = static_cast<int>(blockIdx.x) * kTileRows;
  const int load_row = tid / 4, load_k = tid % 4 * 8;
  const int64_t load_token = tokens.begin + load_row;
  const std::byte* weight_row = weight + int64_t{first_row + load_row} * a.weight_row_bytes;
  const std::byte* x_row = a.x + load_token * a.x_stride_bytes;
  float sums[kPerThread][4] = {};
  for (int k0 = 0; k0 < a.cols; k0 += kTileDepth) {
    const int k = k0 + load_k;
    float values[8] = {};
    if (first_row + load_row < a.rows && k < a.cols)
      read8_weight<W>(weight_row, k, a.cols, a.weight_wide, values);
    for (int j = 0; j < 8; ++j) w_tile[load_k + j][load_row] = values[j];
    if (load_row < kTokens) {
      for (float& value : values) value = 0;
      if (load_token < tokens.end && k < a.cols) read8_any(x_row, a.x_dtype, k, a.cols, a.x_wide, values);
      for (int j = 0; j < 8; ++j) x_tile[load_k + j][load_row] = values[j];
    }
    __syncthreads();
    for (int i = 0; i < kTileDepth; ++i) {
      const float4 w = *reinterpret_cast<const float4*>(&w_tile[i][tid % 16 * 4]);
      for (int m = 0; m < kPerThread; ++m) {
        const float x = x_tile[i][tid / 16 * kPerThread + m];
        sums[m][0] = fmaf(x, w.x, sums[m][0]);
        sums[m][1] = fmaf(x, w.y, sums[m][1]);
        sums[m][2] = fmaf(x, w.z, sums[m][2]);
        sums[m][3] = fmaf(x, w.w, sums[m][3]);
      }
    }
    __syncthreads();
  }
  for (int m = 0; m < kPerThread; ++m) {
    const int64_t token = tokens.begin + tid / 16 * kPerThread + m;
    if (token >= tokens.end) break;
    for (int n = 0; n < 4; ++n) {
      const int row = first_row + tid % 16 * 4 + n;
      if (row >= a.rows) break;
      const float bias =
          a.bias == nullptr ? 0 : a.bias[(a.first_expert + tokens.expert) * a.bias_stride + row];
      store_any(a.out + token * a.out_stride_bytes, a.out_dtype, row, sums[m][n] + bias);
    }
  }
}

void run_tiles(const TileArgs& args, DType weight_dtype, cudaStream_t stream) {
  const auto columns = static_cast<unsigned>(ceil_div(args.rows, kTileRows));
  const bool few = args.tokens <= 16 * int64_t{args.num_experts};
  const int64_t tile = few ? 16 : 64;
  const int64_t tiles =
      args.expert_start == nullptr ? ceil_div(args.tokens, tile) : args.tokens / tile + args.num_experts;
  const dim3 grid(columns, static_cast<unsigned>(tiles));
  with_weight(weight_dtype, [&]<typename W>(Type<W>) {
    if (few)
      tile_kernel<W, 16><<<grid, kThreads, 0, stream>>>(args);
    else
      tile_kernel<W, 64><<<grid, kThreads, 0, stream>>>(args);
  });
  check_launch("linear", {args.tokens, args.rows, args.cols});
}

TileArgs tile_args(TensorView out, ConstTensorView x, int64_t part_rows, int64_t weight_row_bytes) {
  TileArgs args = {};
  args.x = x.data();
  args.x_stride_bytes = x.row_stride_bytes();
  args.x_dtype = x.dtype();
  args.x_wide = is_wide(x, x.cols());
  args.out = out.data();
  args.out_stride_bytes = out.row_stride_bytes();
  args.out_dtype = out.dtype();
  args.tokens = x.rows();
  args.rows = static_cast<int>(part_rows);
  args.cols = static_cast<int>(x.cols());
  args.weight_row_bytes = weight_row_bytes;
  args.weight_wide = weight_row_bytes % 16 == 0;
  args.num_experts = 1;
  return args;
}

// out[t, :] = bias
__global__ void fill_rows_kernel(std::byte* out, int64_t stride_bytes, DType dtype, const float* bias,
                                 int64_t tokens, int64_t rows) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y)
    store_any(out + t * stride_bytes, dtype, i, bias[i]);
}

template <typename T, typename W>
__global__ void dequantize_kernel(T* out, const std::byte* rows, int64_t row_bytes, int64_t count,
                                  int64_t cols) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (k >= cols) return;
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    float values[8];
    read8_weight<W>(rows + r * row_bytes, k, cols, false, values);
    Pack<T, 8> packed;
    for (int j = 0; j < 8; ++j) packed.values[j] = from_float<T>(values[j]);
    *reinterpret_cast<Pack<T, 8>*>(out + r * cols + k) = packed;
  }
}

const std::byte* dequantized(const CudaWeight::Part& part, int64_t cols, DType dtype, Scratch& scratch,
                             cudaStream_t stream) {
  std::byte* wide = scratch.bytes(part.rows * row_bytes(dtype, cols));
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, kThreads * 8)), grid_rows(part.rows));
  with_type(dtype, [&]<typename T>(Type<T>) {
    with_quant(part.dtype, [&]<typename W>(Type<W>) {
      dequantize_kernel<T, W><<<grid, kThreads, 0, stream>>>(reinterpret_cast<T*>(wide), part.data,
                                                             part.row_bytes, part.rows, cols);
    });
  });
  check_launch("dequantize", {part.rows, cols});
  return wide;
}

}  // namespace

void CudaKernels::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                            std::optional<ConstTensorView> bias) const {
  const CudaWeight& w = cuda_weight("linear", weight);
  for (const CudaWeight::Part& part : w.parts()) {
    const TensorView part_out = out.slice_cols(part.first_row, part.rows);
    const float* part_bias = bias ? bias->row<float>(0) + part.first_row : nullptr;
    const MatmulShape shape = {.tokens = x.rows(),
                               .rows = part.rows,
                               .cols = x.cols(),
                               .x_stride = x.row_stride_bytes() / block_bytes(x.dtype()),
                               .out_stride = out.row_stride_bytes() / block_bytes(out.dtype()),
                               .type = x.dtype(),
                               .out_type = out.dtype(),
                               .accumulate = bias.has_value()};
    const bool as_is = part.dtype == x.dtype();
    const bool can_be = is_quantized(part.dtype) && x.rows() > kMostTokensOfTiles;
    if ((as_is || can_be) && Blas::takes(shape, part_out.data(), x.data(), as_is ? part.data : nullptr)) {
      const std::byte* operand =
          as_is ? part.data : dequantized(part, x.cols(), x.dtype(), scratch_, stream_);
      if (bias) {  // the product is added to it: one rounding of the sum
        const dim3 grid(static_cast<unsigned>(ceil_div(part.rows, kThreads)), grid_rows(x.rows()));
        fill_rows_kernel<<<grid, kThreads, 0, stream_>>>(part_out.data(), out.row_stride_bytes(), out.dtype(),
                                                         part_bias, x.rows(), part.rows);
        check_launch("linear's bias", part_out.shape());
      }
      if (blas_.multiply(shape, part_out.data(), x.data(), operand, stream_)) continue;
    }
    TileArgs args = tile_args(part_out, x, part.rows, part.row_bytes);
    args.bias = part_bias;
    args.weights[0] = part.data;
    run_tiles(args, part.dtype, stream_);
  }
}

// One call for each run of experts, part of their weights and kind: experts of another kind have no weight in
// it.
void CudaKernels::do_expert_linear(TensorView out, ConstTensorView x,
                                   std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                   std::optional<ConstTensorView> bias) const {
  for (size_t first = 0; first < experts.size(); first += kMostExperts) {
    const auto run = experts.subspan(first, std::min<size_t>(kMostExperts, experts.size() - first));
    struct Call {
      DType dtype;
      int64_t first_row, rows;
      TileArgs args;
    };
    std::vector<Call> calls;
    for (size_t e = 0; e < run.size(); ++e) {
      for (const CudaWeight::Part& part : cuda_weight("expert_linear", *run[e]).parts()) {
        auto call = std::find_if(calls.begin(), calls.end(), [&](const Call& c) {
          return c.dtype == part.dtype && c.first_row == part.first_row && c.rows == part.rows;
        });
        if (call == calls.end()) {
          TileArgs args = tile_args(out.slice_cols(part.first_row, part.rows), x, part.rows, part.row_bytes);
          if (bias) {
            args.bias = bias->row<float>(0) + part.first_row;
            args.bias_stride = bias->row_stride_bytes() / static_cast<int64_t>(sizeof(float));
          }
          args.expert_start = expert_start.row<int32_t>(0);
          args.first_expert = static_cast<int>(first);
          args.num_experts = static_cast<int>(run.size());
          call = calls.insert(calls.end(), {part.dtype, part.first_row, part.rows, args});
        }
        call->args.weights[e] = part.data;
      }
    }
    for (const Call& call : calls) run_tiles(call.args, call.dtype, stream_);
  }
}

}  // namespace lmdeploy::cuda
