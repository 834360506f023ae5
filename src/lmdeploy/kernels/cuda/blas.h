// Large matrix products by cuBLASLt, which is opened when it is needed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy::cuda {

/// out[t, n] = sum_k x[t, k] * weight[n, k] (+ out[t, n] with `accumulate`); sums in f32. Strides in
/// elements.
struct MatmulShape {
  int64_t tokens = 0, rows = 0, cols = 0;
  int64_t x_stride = 0, out_stride = 0;  // weight rows are contiguous
  DType type = DType::kF32;              // of x and weight; f8_e4m3 too
  DType out_type = DType::kF32;
  bool accumulate = false;

  bool operator==(const MatmulShape&) const = default;
};

class Blas {
 public:
  /// Throws Error(kUnsupported) when the library cannot be opened.
  Blas();
  ~Blas();
  /// Whether the pointers and strides are ones that multiply() takes: whole 16 bytes.
  static bool takes(const MatmulShape& shape, const void* out, const void* x, const void* weight);
  /// False, and nothing done, when the library has no algorithm for the shape.
  bool multiply(const MatmulShape& shape, void* out, const void* x, const void* weight, cudaStream_t stream);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy::cuda
