// Packs weights, and reads rows of them: embedding.
#include "lmdeploy/kernels/cuda/packed_weight.h"

#include <algorithm>
#include <numeric>

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

// Rows from `first` on of a weight as integer_weight.h says, made of rows as in the file.
template <typename W, DType kKind>
__global__ void arrange_kernel(std::byte* weight, int64_t row_bytes, int64_t first, const std::byte* rows,
                               int64_t file_row_bytes, int64_t count, int64_t cols) {
  const int64_t k = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (k >= cols) return;
  for (int64_t i = blockIdx.y; i < count; i += gridDim.y) {
    Codes codes = codes_of(rows + i * file_row_bytes, k, Quant<kKind>());
    if constexpr (kKind == DType::kF8G64)
      if (has_nan(rows + i * file_row_bytes, k)) codes.scale = __uint_as_float(kNaN);
    store8_integers<W>(weight, first + i, row_bytes, k, codes, kLowest<kKind>);
  }
}

void arrange(const WeightPart& part, int64_t first, const std::byte* rows, ConstTensorView source,
             cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(source.cols(), kThreads * 8)), grid_rows(source.rows()));
  with_quant(part.dtype, [&]<DType kKind>(Type<Quant<kKind>>) {
    if constexpr (integer_format(kKind).exists()) {
      constexpr IntegerFormat kFormat = integer_format(kKind);
      using W = Integers<kFormat.bits, kFormat.group, kFormat.scale>;
      arrange_kernel<W, kKind><<<grid, kThreads, 0, stream>>>(part.data, part.row_bytes, first, rows,
                                                              row_bytes(kKind, source.cols()), source.rows(),
                                                              source.cols());
    }
  });
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
      read8_weight<W>(a.part.data, row, a.part.row_bytes, k, a.cols, a.wide, values);
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

void CudaWeight::plan(std::span<const ConstTensorView> parts, DType float_dtype, bool as_integers) {
  int64_t first_row = 0;
  for (const ConstTensorView& part : parts) {
    const DType dtype = is_quantized(part.dtype()) ? part.dtype() : float_dtype;
    if (parts_.empty() || parts_.back().dtype != dtype) {
      const IntegerFormat integers = as_integers ? integer_format(dtype) : IntegerFormat();
      const int64_t bytes = integers.exists() ? integers.row_bytes(cols()) : row_bytes(dtype, cols());
      parts_.push_back({dtype, first_row, 0, bytes, integers, nullptr});
    }
    parts_.back().rows += part.dim(0);
    first_row += part.dim(0);
  }
  // Whole tiles; a part begins where wide accesses may.
  const auto bytes_of = [](const WeightPart& part) {
    return (part.integers.exists() ? ceil_div(part.rows, 16) * 16 : part.rows) * part.row_bytes;
  };
  const auto after = [&](int64_t bytes, const WeightPart& part) {
    return ceil_div(bytes + bytes_of(part), 256) * 256;
  };
  const int64_t bytes = std::accumulate(parts_.begin(), parts_.end(), int64_t{0}, after);
  buffer_ = Buffer(static_cast<size_t>(bytes), device_allocator());
  int64_t at = 0;
  for (WeightPart& part : parts_) {
    part.data = buffer_.data() + at;
    at = after(at, part);
  }
}

void CudaWeight::upload_order() {
  if (column_order().empty()) return;
  order_ = Buffer(column_order().size_bytes(), device_allocator());
  check(cudaMemcpy(order_.data(), column_order().data(), order_.size(), cudaMemcpyHostToDevice),
        "copy a column order to the device");
}

const WeightPart& CudaWeight::part_of(int64_t row) const {
  return *std::find_if(parts_.begin(), parts_.end(),
                       [&](const WeightPart& p) { return row < p.first_row + p.rows; });
}

const CudaWeight& cuda_weight(const char* op, const PackedWeight& weight) {
  const auto* own = dynamic_cast<const CudaWeight*>(&weight);
  if (own == nullptr)
    throw Error(ErrorCode::kInvalidArgument,
                cat(op, ": the weight was packed by another back end than cuda"));
  return *own;
}

std::unique_ptr<PackedWeight> CudaKernels::do_pack_weight(std::span<const ConstTensorView> parts,
                                                          int64_t rows,
                                                          std::span<const int32_t> column_order) const {
  for (const ConstTensorView& part : parts)
    if (part.dtype() == DType::kF64)
      throw Error(ErrorCode::kUnsupported,
                  "the CUDA back end has no kernels for f64 weights; convert them to f32");
  auto weight = std::make_unique<CudaWeight>(rows, parts[0].dim(1), column_order);
  weight->plan(parts, dtype_, device_.code.major >= 8 && dtype_ != DType::kF32);
  weight->upload_order();
  // What fills tiles of integers up counts as 0.
  check(cudaMemsetAsync(weight->memory().data(), 0, weight->memory().size(), stream_), "clear a weight");
  int64_t first_row = 0;
  for (const ConstTensorView& part : parts) {
    const WeightPart& place = weight->part_of(first_row);
    fill_part(place, first_row - place.first_row, part);
    first_row += part.rows();
  }
  return weight;
}

// `rows` become those of the part from `first` on.
void CudaKernels::fill_part(const WeightPart& part, int64_t first, ConstTensorView rows) const {
  if (rows.rows() == 0) return;
  const int64_t source_row = row_bytes(rows.dtype(), rows.cols());
  std::byte* place = part.data + first * part.row_bytes;
  const bool as_is = !part.integers.exists() && part.dtype == rows.dtype();
  std::byte* arrival = as_is ? place : scratch_.bytes(rows.rows() * source_row);
  check(cudaMemcpy2DAsync(arrival, static_cast<size_t>(source_row), rows.data(),
                          static_cast<size_t>(rows.row_stride_bytes()), static_cast<size_t>(source_row),
                          static_cast<size_t>(rows.rows()), cudaMemcpyHostToDevice, stream_),
        "copy a weight to the device");
  if (part.integers.exists()) {
    arrange(part, first, arrival, rows, stream_);
  } else if (!as_is) {
    convert_kernel<<<static_cast<unsigned>(device_.num_sms * 8), kThreads, 0, stream_>>>(
        place, dtype_, arrival, rows.dtype(), rows.rows() * rows.cols());
  }
  check_launch("convert a weight", rows.shape());
  check(cudaStreamSynchronize(stream_), "copy a weight to the device");
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
    with_weight(part.dtype, part.integers,
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
