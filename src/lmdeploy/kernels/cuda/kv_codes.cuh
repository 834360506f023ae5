// How the elements of a row become codes (KvLayout): the operations of the specification, none contracted.
#pragma once

#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {

/// Keys are turned (KvLayout::turned_run): x becomes H x, but for a factor. Within elements that follow each
/// other; then with those of the lane whose number differs in bit `other`. `mask`: all lanes that call it.
template <int kCount>
__device__ void turn_elements(float (&x)[kCount]) {
#pragma unroll
  for (int h = 1; h < kCount; h *= 2)
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if ((i & h) == 0) {
        const float sum = x[i] + x[i + h], difference = x[i] - x[i + h];
        x[i] = sum, x[i + h] = difference;
      }
}
template <int kCount>
__device__ void turn_with_lane(float (&x)[kCount], int other, unsigned mask = ~0u) {
#pragma unroll
  for (float& own : x) {
    const float theirs = __shfl_xor_sync(mask, own, other);
    own = (static_cast<int>(threadIdx.x) & other) == 0 ? own + theirs : theirs - own;
  }
}

/// What the elements of a part of a row span.
struct Span {
  float low = INFINITY, high = -INFINITY;
  bool finite = true;

  __device__ void add(float x) {
    low = fminf(low, x), high = fmaxf(high, x);
    finite = finite && isfinite(x);
  }
  /// Of so many lanes that follow each other, a power of two; `mask`: all lanes that call it.
  __device__ void join_lanes(int lanes, unsigned mask) {
    for (int other = 1; other < lanes; other *= 2) {
      low = fminf(low, __shfl_xor_sync(mask, low, other));
      high = fmaxf(high, __shfl_xor_sync(mask, high, other));
      finite = (__shfl_xor_sync(mask, static_cast<int>(finite), other) & static_cast<int>(finite)) != 0;
    }
  }
};

/// Scale and min of a part of a row, and its codes.
struct Coder {
  __half2 params;  // scale, min
  float inverse, least, most_code;
  bool finite;

  __device__ Coder(const Span& span, int max_code)
      : most_code(static_cast<float>(max_code)), finite(span.finite) {
    const __half nan = __ushort_as_half(0x7e00);
    const __half min = finite ? in_range(__fadd_rn(span.low, 0)) : nan;
    least = __half2float(min);
    const __half scale = finite ? in_range(__fdiv_rn(fmaxf(0, __fsub_rn(span.high, least)), most_code)) : nan;
    const float step = __half2float(scale);
    inverse = step > 0 ? __fdiv_rn(1, step) : 0;
    params = {scale, min};
  }
  __device__ unsigned code(float x) const {
    if (!finite) return 0;
    return static_cast<unsigned>(
        __float2int_rn(fminf(fmaxf(__fmul_rn(__fsub_rn(x, least), inverse), 0), most_code)));
  }
  /// Codes of eight elements, a byte each.
  __device__ uint2 eight(const float* x) const {
    const auto four = [&](const float* y) {
      return code(y[0]) | code(y[1]) << 8 | code(y[2]) << 16 | code(y[3]) << 24;
    };
    return {four(x), four(x + 4)};
  }

 private:
  __device__ static __half in_range(float value) {
    constexpr float kMost = 65504;
    return __float2half_rn(value < -kMost ? -kMost : value > kMost ? kMost : value);
  }
};

}  // namespace lmdeploy::cuda
