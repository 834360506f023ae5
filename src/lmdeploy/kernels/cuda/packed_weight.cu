// Packs weights, and reads rows of them: embedding.
#include "lmdeploy/kernels/cuda/packed_weight.h"

#include <algorithm>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/quant.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void convert_kernel(std::byte* dst, DType to, const std::byte* src, DType from, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step)
    store_any(dst, to, i, load_any(src, from, i));
}

struct EmbeddingArgs {
  std::byte* out;
  int64_t out_stride_bytes;
  DType out_dtype;
  const int32_t* ids;
  int64_t tokens;
  int64_t cols;
  int64_t table_rows;
  WeightPart part;
  bool wide;
};

// Tokens whose id is in the part; the first part's call fills the row of an id outside the table with NaN.
template <typename W>
__global__ void embedding_kernel(EmbeddingArgs a) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (k >= a.cols) return;
  for (int64_t t = blockIdx.y; t < a.tokens; t += gridDim.y) {
    const int64_t id = a.ids[t], row = id - a.part.first_row;
    float values[8];
    if (row >= 0 && row < a.part.rows) {
      read8_weight<W>(a.part.data + row * a.part.row_bytes, k, a.cols, a.wide, values);
    } else if (a.part.first_row == 0 && (id < 0 || id >= a.table_rows)) {
      for (float& value : values) value = nanf("");
    } else {
      continue;
    }
    for (int j = 0; j < 8 && k + j < a.cols; ++j)
      store_any(a.out + t * a.out_stride_bytes, a.out_dtype, k + j, values[j]);
  }
}

__global__ void gather_kernel(std::byte* out, int64_t out_stride, const std::byte* x, int64_t x_stride,
                              const int32_t* rows, int64_t count, int64_t x_rows, int64_t units,
                              int unit_bytes) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= units) return;
  for (int64_t r = blockIdx.y; r < count; r += gridDim.y) {
    const int64_t source = rows[r];
    const bool known = source >= 0 && source < x_rows;
    const std::byte* from = x + source * x_stride + i * unit_bytes;
    std::byte* to = out + r * out_stride + i * unit_bytes;
    if (unit_bytes == 16)
      *reinterpret_cast<uint4*>(to) =
          known ? *reinterpret_cast<const uint4*>(from) : uint4{~0u, ~0u, ~0u, ~0u};
    else  // 2 bytes; all bits set are NaN in every float type
      *reinterpret_cast<uint16_t*>(to) = known ? *reinterpret_cast<const uint16_t*>(from) : uint16_t{0xffff};
  }
}

}  // namespace

void CudaWeight::plan(std::span<const ConstTensorView> parts, DType float_dtype) {
  int64_t bytes = 0, first_row = 0;
  std::vector<int64_t> offsets;
  for (const ConstTensorView& part : parts) {
    const DType dtype = is_quantized(part.dtype()) ? part.dtype() : float_dtype;
    if (parts_.empty() || parts_.back().dtype != dtype) {
      bytes = (bytes + 255) / 256 * 256;  // a part begins where wide accesses may
      parts_.push_back({dtype, first_row, 0, row_bytes(dtype, cols()), nullptr});
      offsets.push_back(bytes);
    }
    parts_.back().rows += part.dim(0);
    bytes += part.dim(0) * parts_.back().row_bytes;
    first_row += part.dim(0);
  }
  buffer_ = Buffer(static_cast<size_t>(bytes), device_allocator());
  for (size_t i = 0; i < parts_.size(); ++i) parts_[i].data = buffer_.data() + offsets[i];
}

std::byte* CudaWeight::row_data(int64_t row) const {
  const auto part = std::find_if(parts_.begin(), parts_.end(),
                                 [&](const WeightPart& p) { return row < p.first_row + p.rows; });
  return buffer_.data() + (part->data - buffer_.data()) + (row - part->first_row) * part->row_bytes;
}

const CudaWeight& cuda_weight(const char* op, const PackedWeight& weight) {
  const auto* own = dynamic_cast<const CudaWeight*>(&weight);
  if (own == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                cat(op, ": the weight was packed by another back end than cuda"));
  return *own;
}

std::unique_ptr<PackedWeight> CudaKernels::pack_weight(std::span<const ConstTensorView> parts) const {
  const int64_t rows = checks::weight_parts(parts);
  for (const ConstTensorView& part : parts)
    if (part.dtype() == DType::kF64)
      throw Error(ErrorCode::kUnsupported,
                  "the CUDA back end has no kernels for f64 weights; convert them to f32");
  auto weight = std::make_unique<CudaWeight>(rows, parts[0].dim(1));
  weight->plan(parts, dtype_);
  int64_t first_row = 0;
  for (const ConstTensorView& part : parts) {
    const auto source_row = row_bytes(part.dtype(), part.cols());
    const bool as_is = is_quantized(part.dtype()) || part.dtype() == dtype_;
    std::byte* place = weight->row_data(first_row);
    std::byte* arrival = as_is ? place : scratch_.bytes(part.rows() * source_row);
    check(cudaMemcpy2DAsync(arrival, static_cast<size_t>(source_row), part.data(),
                            static_cast<size_t>(part.row_stride_bytes()), static_cast<size_t>(source_row),
                            static_cast<size_t>(part.rows()), cudaMemcpyHostToDevice, stream_),
          "copy a weight to the device");
    if (!as_is) {
      convert_kernel<<<static_cast<unsigned>(device_.num_sms * 8), kThreads, 0, stream_>>>(
          place, dtype_, arrival, part.dtype(), part.rows() * part.cols());
      check_launch("convert a weight", part.shape());
    }
    check(cudaStreamSynchronize(stream_), "copy a weight to the device");
    first_row += part.rows();
  }
  return weight;
}

void CudaKernels::do_embedding(TensorView out, ConstTensorView ids, const PackedWeight& table) const {
  const CudaWeight& weight = cuda_weight("embedding", table);
  const dim3 grid(static_cast<unsigned>(ceil_div(out.cols(), kThreads * 8)), grid_rows(out.rows()));
  for (const WeightPart& part : weight.parts()) {
    const EmbeddingArgs args = {.out = out.data(),
                                .out_stride_bytes = out.row_stride_bytes(),
                                .out_dtype = out.dtype(),
                                .ids = ids.row<int32_t>(0),
                                .tokens = out.rows(),
                                .cols = out.cols(),
                                .table_rows = table.rows(),
                                .part = part,
                                .wide = part.row_bytes % 16 == 0};
    with_weight(part.dtype,
                [&]<typename W>(Type<W>) { embedding_kernel<W><<<grid, kThreads, 0, stream_>>>(args); });
    check_launch("embedding", out.shape());
  }
}

void CudaKernels::do_gather_rows(TensorView out, ConstTensorView x, ConstTensorView rows) const {
  if (out.dtype() != x.dtype())
    throw Error(ErrorCode::kInvalidArgument, cat("gather_rows: ", x.dtype(), " to ", out.dtype()));
  const int unit_bytes = is_wide(out, out.cols()) && is_wide(x, x.cols()) ? 16 : 2;
  const int64_t units = row_bytes(out.dtype(), out.cols()) / unit_bytes;
  if (units == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(units, kThreads)), grid_rows(out.rows()));
  gather_kernel<<<grid, kThreads, 0, stream_>>>(out.data(), out.row_stride_bytes(), x.data(),
                                                x.row_stride_bytes(), rows.row<int32_t>(0), out.rows(),
                                                x.rows(), units, unit_bytes);
  check_launch("gather_rows", out.shape());
}

}  // namespace lmdeploy::cuda
