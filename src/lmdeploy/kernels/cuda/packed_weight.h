// Weights on the device: float kinds in the activation dtype, quantised kinds as in the file.
#pragma once

#include <vector>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cuda {

/// Rows of one kind, contiguous.
struct WeightPart {
  DType dtype;
  int64_t first_row;  // in the whole weight
  int64_t rows;
  int64_t row_bytes;
  const std::byte* data;
};

class CudaWeight final : public PackedWeight {
 public:
  CudaWeight(int64_t rows, int64_t cols) : PackedWeight(rows, cols) {}
  size_t bytes() const override { return buffer_.size(); }
  /// Neighbours differ in dtype.
  const std::vector<WeightPart>& parts() const { return parts_; }

  /// Memory for parts of these kinds, data still to come.
  void plan(std::span<const ConstTensorView> parts, DType float_dtype);
  /// Where row `row` of the whole weight begins.
  std::byte* row_data(int64_t row) const;

 private:
  std::vector<WeightPart> parts_;
  Buffer buffer_;
};

const CudaWeight& cuda_weight(const char* op, const PackedWeight& weight);

}  // namespace lmdeploy::cuda
