// linear and expert_linear: chooses how each part of a weight is multiplied.
#include <algorithm>

#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/few_integers.h"
#include "lmdeploy/kernels/cuda/linear_tiles.h"
#include "lmdeploy/kernels/cuda/packed_weight.h"
#include "lmdeploy/kernels/cuda/quant.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;
/// Up to that many tokens, quantised weights are read as they are; above, a slice of rows at a time goes into
/// 16 bits, for cuBLASLt.
constexpr int64_t kMostTokensAsTheyAre = 4;
constexpr int64_t kSliceBytes = int64_t{128} << 20;
/// Where there is no other way: up to that many tokens for each weight, a row of it at a time.
constexpr int64_t kMostTokensOfRows = 16;

void run_tiles(const TileArgs& args, const WeightPart& part, bool batch_invariant, cudaStream_t stream) {
  if (part.integers.exists()) return run_integer_tiles(args, part.integers, stream);
  const bool few = args.tokens <= kMostTokensOfRows * args.weights.count && !batch_invariant;
  if (few && run_rows(args, part.dtype, stream)) return;
  (is_quantized(part.dtype) ? run_quant_tiles : run_float_tiles)(args, part.dtype, stream);
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
  args.weights.count = 1;
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
__global__ void dequantize_kernel(T* out, const std::byte* weight, int64_t row_bytes, int64_t first,
                                  int64_t count, int64_t cols) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (k >= cols) return;
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    float values[8];
    read8_weight<W>(weight, first + r, row_bytes, k, cols, false, values);
    Pack<T, 8> packed;
    for (int j = 0; j < 8; ++j) packed.values[j] = from_float<T>(values[j]);
    *reinterpret_cast<Pack<T, 8>*>(out + r * cols + k) = packed;
  }
}

// Rows `first` to first + count.
const std::byte* dequantized(const WeightPart& part, int64_t first, int64_t count, int64_t cols, DType dtype,
                             Scratch& scratch, cudaStream_t stream) {
  std::byte* wide = scratch.bytes(count * row_bytes(dtype, cols));
  const dim3 grid(static_cast<unsigned>(ceil_div(cols, kThreads * 8)), grid_rows(count));
  with_type(dtype, [&]<typename T>(Type<T>) {
    with_weight(part.dtype, part.integers, [&]<typename W>(Type<W>) {
      dequantize_kernel<T, W><<<grid, kThreads, 0, stream>>>(reinterpret_cast<T*>(wide), part.data,
                                                             part.row_bytes, first, count, cols);
    });
  });
  check_launch("dequantize", {count, cols});
  return wide;
}

MatmulShape matmul_shape(TensorView out, ConstTensorView x) {
  return {.tokens = x.rows(),
          .rows = out.cols(),
          .cols = x.cols(),
          .x_stride = x.row_stride_bytes() / block_bytes(x.dtype()),
          .out_stride = out.row_stride_bytes() / block_bytes(out.dtype()),
          .type = x.dtype(),
          .out_type = out.dtype()};
}

// Where a kernel of this back end beats the library: few tokens, and with weights of 16 bits those that x
// matches.
bool suits_few_tokens(const MatmulShape& shape, const WeightPart& part, const DeviceLimits& device,
                      bool batch_invariant) {
  if (part.integers.exists())
    return batch_invariant || shape.tokens <= kMostIntegerTokens ||
           suits_groups(shape.tokens, part.integers, device);
  return (batch_invariant || shape.tokens <= kMostFewTokens) && device.code.major >= 8 &&
         part.dtype == shape.type && shape.type != DType::kF32;
}

/// body(Type<T>(), bits): T is the activations', bits an integral constant.
template <typename Body>
void with_type_and_bits(DType dtype, int bits, const Body& body) {
  const auto with_bits = [&]<typename T>(Type<T> type) {
    if (bits == 4)
      body(type, std::integral_constant<int, 4>());
    else
      body(type, std::integral_constant<int, 8>());
  };
  if (dtype == DType::kF16)
    with_bits(Type<__half>());
  else
    with_bits(Type<__nv_bfloat16>());
}

void run_few(const FewTokensArgs& args, DType dtype, const IntegerFormat& format, const DeviceLimits& device,
             const Meeting& meeting, bool batch_invariant, cudaStream_t stream) {
  with_type_and_bits(dtype, format.bits,
                     [&]<typename T, int kBits>(Type<T>, std::integral_constant<int, kBits>) {
                       if (!format.exists())
                         run_few_tokens<T>(args, device, stream);
                       else if (args.tokens <= kMostFewTokens || batch_invariant)
                         run_few_integers<T, kBits>(args, format, device, stream);
                       else if (suits_groups(args.tokens, format, device))
                         run_group_integers<T, kBits>(args, format, meeting, stream);
                       else
                         run_many_integers<T, kBits>(args, format, meeting, stream);
                     });
}

}  // namespace

void CudaKernels::do_linear(TensorView out, ConstTensorView x, const PackedWeight& weight,
                            std::optional<ConstTensorView> bias) const {
  x = in_column_order(x, weight);
  for (const WeightPart& part : cuda_weight("linear", weight).parts()) {
    const TensorView part_out = out.slice_cols(part.first_row, part.rows);
    const float* part_bias = bias ? bias->row<float>(0) + part.first_row : nullptr;
    if (multiply_few(part_out, x, part, part_bias, std::nullopt) ||
        multiply_by_blas(part_out, x, part, part_bias))
      continue;
    TileArgs args = tile_args(part_out, x, part.rows, part.row_bytes);
    args.weights.bias = part_bias;
    args.weights.weights[0] = part.data;
    run_tiles(args, part, options_.batch_invariant, stream_);
  }
}

void CudaKernels::do_linear_glu(TensorView out, TensorView up, ConstTensorView x, const PackedWeight& weight,
                                std::optional<ConstTensorView> bias, Activation activation) const {
  const std::vector<WeightPart>& parts = cuda_weight("linear_glu", weight).parts();
  if (parts.size() == 1 && out.dtype() == x.dtype() &&
      multiply_few(out, in_column_order(x, weight), parts.front(), bias ? bias->row<float>(0) : nullptr,
                   activation))
    return;
  Kernels::do_linear_glu(out, up, x, weight, bias, activation);
}

bool CudaKernels::multiply_few(TensorView out, ConstTensorView x, const WeightPart& part, const float* bias,
                               std::optional<Activation> glu) const {
  const MatmulShape shape = matmul_shape(out, x);
  if (!suits_few_tokens(shape, part, device_, options_.batch_invariant) ||
      !Blas::takes(shape, out.data(), x.data(), part.data) ||
      (glu && part.integers.exists() && part.rows % 32 != 0))
    return false;
  const FewTokensArgs args = {.weight = part.data,
                              .x = x.data(),
                              .x_stride = shape.x_stride,
                              .out = out.data(),
                              .out_stride_bytes = out.row_stride_bytes(),
                              .out_dtype = out.dtype(),
                              .bias = bias,
                              .rows = static_cast<int>(part.rows),
                              .cols = static_cast<int>(shape.cols),
                              .tokens = static_cast<int>(shape.tokens),
                              .glu = glu,
                              .one_order = options_.batch_invariant};
  const Meeting meeting = {device_.num_sms, &scratch_, reinterpret_cast<int32_t*>(arrivals_.data())};
  run_few(args, x.dtype(), part.integers, device_, meeting, options_.batch_invariant, stream_);
  check_launch("linear", {shape.tokens, shape.rows, shape.cols});
  return true;
}

bool CudaKernels::multiply_experts(TensorView out, ConstTensorView x, const WeightPart& part,
                                   const ExpertWeights& experts) const {
  const MatmulShape shape = matmul_shape(out, x);
  if (!part.integers.exists() || !Blas::takes(shape, out.data(), x.data(), part.data)) return false;
  const FewTokensArgs args = {.x = x.data(),
                              .x_stride = shape.x_stride,
                              .out = out.data(),
                              .out_stride_bytes = out.row_stride_bytes(),
                              .out_dtype = out.dtype(),
                              .rows = static_cast<int>(part.rows),
                              .cols = static_cast<int>(shape.cols),
                              .tokens = static_cast<int>(shape.tokens),
                              .one_order = options_.batch_invariant};
  with_type_and_bits(x.dtype(), part.integers.bits,
                     [&]<typename T, int kBits>(Type<T>, std::integral_constant<int, kBits>) {
                       run_expert_integers<T, kBits>(args, experts, part.integers, stream_);
                     });
  check_launch("expert_linear", {shape.tokens, shape.rows, shape.cols});
  return true;
}

bool CudaKernels::multiply_by_blas(TensorView out, ConstTensorView x, const WeightPart& part,
                                   const float* bias) const {
  if (options_.batch_invariant) return false;
  MatmulShape shape = matmul_shape(out, x);
  shape.accumulate = bias != nullptr;
  const bool as_is = part.dtype == x.dtype();
  const bool can_be = is_quantized(part.dtype) && x.rows() > kMostTokensAsTheyAre;
  if (!(as_is || can_be) || !Blas::takes(shape, out.data(), x.data(), as_is ? part.data : nullptr))
    return false;
  if (bias != nullptr) {  // the product is added to it: one rounding of the sum
    const dim3 grid(static_cast<unsigned>(ceil_div(part.rows, kThreads)), grid_rows(x.rows()));
    fill_rows_kernel<<<grid, kThreads, 0, stream_>>>(out.data(), out.row_stride_bytes(), out.dtype(), bias,
                                                     x.rows(), part.rows);
    check_launch("linear's bias", out.shape());
  }
  if (as_is) return blas_.multiply(shape, out.data(), x.data(), part.data, stream_);
  const int64_t most = std::max<int64_t>(kSliceBytes / row_bytes(x.dtype(), x.cols()) / 64, 1) * 64;
  for (int64_t first = 0; first < part.rows; first += most) {
    shape.rows = std::min(most, part.rows - first);
    const std::byte* wide = dequantized(part, first, shape.rows, x.cols(), x.dtype(), scratch_, stream_);
    if (!blas_.multiply(shape, out.slice_cols(first, shape.rows).data(), x.data(), wide, stream_))
      return false;
  }
  return true;
}

// One call for each run of experts, part of their weights and kind: experts of another kind have no weight in
// it.
void CudaKernels::do_expert_linear(TensorView out, ConstTensorView x,
                                   std::span<const PackedWeight* const> experts, ConstTensorView expert_start,
                                   std::optional<ConstTensorView> bias) const {
  x = in_column_order(x, experts, expert_start);
  for (size_t first = 0; first < experts.size(); first += kMostExperts) {
    const auto run = experts.subspan(first, std::min<size_t>(kMostExperts, experts.size() - first));
    struct Call {
      const WeightPart* part;  // of the first expert
      TileArgs args;
    };
    std::vector<Call> calls;
    for (size_t e = 0; e < run.size(); ++e) {
      for (const WeightPart& part : cuda_weight("expert_linear", *run[e]).parts()) {
        auto call = std::find_if(calls.begin(), calls.end(), [&](const Call& c) {
          return c.part->dtype == part.dtype && c.part->first_row == part.first_row &&
                 c.part->rows == part.rows;
        });
        if (call == calls.end()) {
          TileArgs args = tile_args(out.slice_cols(part.first_row, part.rows), x, part.rows, part.row_bytes);
          if (bias) {
            args.weights.bias = bias->row<float>(0) + part.first_row;
            args.weights.bias_stride = bias->row_stride_bytes() / static_cast<int64_t>(sizeof(float));
          }
          args.weights.start = expert_start.row<int32_t>(0);
          args.weights.first = static_cast<int>(first);
          args.weights.count = static_cast<int>(run.size());
          call = calls.insert(calls.end(), {&part, args});
        }
        call->args.weights.weights[e] = part.data;
      }
    }
    for (const Call& call : calls)
      if (!multiply_experts(out.slice_cols(call.part->first_row, call.part->rows), x, *call.part,
                            call.args.weights))
        run_tiles(call.args, *call.part, options_.batch_invariant, stream_);
  }
}

}  // namespace lmdeploy::cuda
