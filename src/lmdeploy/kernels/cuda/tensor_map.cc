// Describes matrices to the copy engine.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/tensor_map.h"

namespace lmdeploy::cuda {
namespace {

// Of the driver, which this program is not linked with.
auto find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result),
        "find cuTensorMapEncodeTiled");
  if (result != cudaDriverEntryPointSuccess)
    throw Error(ErrorCode::kUnsupported, "CUDA: the driver has no cuTensorMapEncodeTiled");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
}

}  // namespace

CUtensorMap describe_matrix(const void* data, bool f16, int64_t rows, int64_t cols, int64_t box_rows) {
  static const auto encode = find_encoder();
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(cols), static_cast<cuuint64_t>(rows)},
                   row_bytes = sizes[0] * 2;
  const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(box_rows)}, steps[2] = {1, 1};
  CUtensorMap map = {};
  const CUresult status = encode(
      &map, f16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2,
      const_cast<void*>(data), sizes, &row_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw Error(ErrorCode::kInternal, cat("CUDA: describe a matrix of [", rows, ", ", cols,
                                          "] to the copy engine: error ", int{status}));
  return map;
}

}  // namespace lmdeploy::cuda
