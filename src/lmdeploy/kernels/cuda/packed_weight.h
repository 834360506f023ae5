// Weights on the device: float kinds in the activation dtype, quantised kinds as in the file or, where tensor
// cores multiply them, as integer_weight.h says.
#pragma once

#include <vector>

#include "lmdeploy/kernels/cuda/integer_weight.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cuda {

/// Rows of one kind, contiguous.
struct WeightPart {
  DType dtype;
  int64_t first_row;  // in the whole weight
  int64_t rows;
  int64_t row_bytes;
  IntegerFormat integers;
  std::byte* data;
};

class CudaWeight final : public PackedWeight {
 public:
  CudaWeight(int64_t rows, int64_t cols, std::span<const int32_t> column_order)
      : PackedWeight(rows, cols, column_order) {}
  size_t bytes() const override { return buffer_.size() + order_.size(); }
  /// Neighbours differ in dtype.
  const std::vector<WeightPart>& parts() const { return parts_; }

  /// Memory for parts of these kinds. `as_integers`: those that have such a format.
  void plan(std::span<const ConstTensorView> parts, DType float_dtype, bool as_integers);
  /// Fills device_order().
  void upload_order();
  std::span<std::byte> memory() const { return {buffer_.data(), buffer_.size()}; }
  /// column_order() on the device; null where it is empty.
  const int32_t* device_order() const { return reinterpret_cast<const int32_t*>(order_.data()); }
  /// Which part has that row of the whole weight.
  const WeightPart& part_of(int64_t row) const;

 private:
  std::vector<WeightPart> parts_;
  Buffer buffer_;
  Buffer order_;
};

const CudaWeight& cuda_weight(const char* op, const PackedWeight& weight);

}  // namespace lmdeploy::cuda
