// The reference back end's weights and helpers.
#include "lmdeploy/kernels/ref/ref_kernels.h"

#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/checks.h"

namespace lmdeploy {

RefWeight::RefWeight(std::span<const ConstTensorView> parts, int64_t rows,
                     std::span<const int32_t> column_order)
    : PackedWeight(rows, parts[0].dim(1), column_order) {
  for (const ConstTensorView& part : parts) {
    Tensor copy(part.dtype(), part.shape());
    const auto bytes = static_cast<size_t>(row_bytes(part.dtype(), part.cols()));
    for (int64_t r = 0; r < part.rows(); ++r) std::memcpy(copy.view().row_data(r), part.row_data(r), bytes);
    parts_.push_back(std::move(copy));
  }
}

size_t RefWeight::bytes() const {
  size_t total = 0;
  for (const Tensor& part : parts_) total += part.bytes();
  return total;
}

void RefWeight::read_row(int64_t row, double* dst) const {
  size_t p = 0;
  while (row >= parts_[p].dim(0)) row -= parts_[p++].dim(0);
  const ConstTensorView part = parts_[p];
  const auto column = [&](int64_t k) {
    return column_order().empty() ? k : column_order()[static_cast<size_t>(k)];
  };
  if (part.dtype() == DType::kF64) {
    for (int64_t k = 0; k < cols(); ++k) dst[column(k)] = part.at(row, k);
    return;
  }
  std::vector<float> values(static_cast<size_t>(cols()));
  dequantize(part.dtype(), part.row_data(row), values.data(), cols());
  for (int64_t k = 0; k < cols(); ++k) dst[column(k)] = values[static_cast<size_t>(k)];
}

std::unique_ptr<PackedWeight> RefKernels::do_pack_weight(std::span<const ConstTensorView> parts, int64_t rows,
                                                         std::span<const int32_t> column_order) const {
  return std::make_unique<RefWeight>(parts, rows, column_order);
}

void RefKernels::for_rows(int64_t rows, FunctionRef<void(int64_t)> body) const {
  threads_->parallel_for(rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) body(r);
  });
}

const RefWeight& ref_weight(const char* op, const PackedWeight& weight) {
  const auto* own = dynamic_cast<const RefWeight*>(&weight);
  if (own == nullptr)
    throw Error(ErrorCode::kInvalidArgument, cat(op, ": the weight was packed by another back end than ref"));
  return *own;
}

std::unique_ptr<Kernels> make_ref_kernels(std::shared_ptr<ThreadPool> threads) {
  return std::make_unique<RefKernels>(std::move(threads));
}

}  // namespace lmdeploy
