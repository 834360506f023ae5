// What the kernels share: element types, rows of a view, reductions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/tensor.h"
#include "lmdeploy/kernels/cuda/cuda_check.h"

namespace lmdeploy::cuda {

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ T from_float(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

/// The rows of a view.
template <typename T>
struct Rows {
  T* data;
  int64_t stride;  // elements: 64 bits, as tokens * columns overflow 32
  __host__ __device__ T* row(int64_t r) const { return data + r * stride; }
};
template <typename T>
Rows<T> rows_of(TensorView t) {
  return {reinterpret_cast<T*>(t.data()), t.row_stride_bytes() / static_cast<int64_t>(sizeof(T))};
}
template <typename T>
Rows<const T> rows_of(ConstTensorView t) {
  return {reinterpret_cast<const T*>(t.data()), t.row_stride_bytes() / static_cast<int64_t>(sizeof(T))};
}

/// N elements that are loaded and stored at once.
template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
};
/// Elements of one 16-byte access.
template <typename T>
constexpr int kWidth = 16 / static_cast<int>(sizeof(T));

/// Whether all rows of a view, `cols` of them used, are whole 16-byte accesses.
inline bool is_wide(ConstTensorView t, int64_t cols) {
  return reinterpret_cast<uintptr_t>(t.data()) % 16 == 0 && t.row_stride_bytes() % 16 == 0 &&
         row_bytes(t.dtype(), cols) % 16 == 0;
}

template <typename T>
struct Type {
  using type = T;
};
/// body(Type<T>()) for f32, f16 or bf16.
template <typename Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(Type<float>());
    case DType::kF16:
      return body(Type<__half>());
    case DType::kBF16:
      return body(Type<__nv_bfloat16>());
    default:
      break;
  }
  throw Error(ErrorCode::kInvalidArgument, cat("the CUDA back end does not compute in ", dtype));
}

/// Element `i` of a row in f32, f16 or bf16: for operands that are read once, where a branch costs nothing.
__device__ inline float load_any(const void* row, DType dtype, int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(row)[i];
  if (dtype == DType::kF16) return to_float(static_cast<const __half*>(row)[i]);
  return to_float(static_cast<const __nv_bfloat16*>(row)[i]);
}
__device__ inline void store_any(void* row, DType dtype, int64_t i, float value) {
  if (dtype == DType::kF32)
    static_cast<float*>(row)[i] = value;
  else if (dtype == DType::kF16)
    static_cast<__half*>(row)[i] = from_float<__half>(value);
  else
    static_cast<__nv_bfloat16*>(row)[i] = from_float<__nv_bfloat16>(value);
}
__device__ inline int element_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}
/// Of all threads of a block of at most 1024, in a fixed order. `shared`: 32 floats, free again afterwards.
__device__ inline float block_sum(float value, float* shared) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  const int warps = (static_cast<int>(blockDim.x) + 31) / 32;
  value = warp_sum(threadIdx.x % 32 < warps ? shared[threadIdx.x % 32] : 0);
  __syncthreads();
  return value;
}

__host__ __device__ inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Rows beyond what a grid's y dimension takes are reached by a loop.
inline unsigned grid_rows(int64_t rows) { return static_cast<unsigned>(rows < 65535 ? rows : 65535); }

}  // namespace lmdeploy::cuda
