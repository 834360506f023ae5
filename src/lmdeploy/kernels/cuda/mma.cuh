// The instructions that C++ has no words for: 16x8x16 products on tensor cores, the loads that feed them, and
// copies to shared memory that run beside arithmetic. From sm_80 on; elsewhere they trap.
#pragma once

#include <cstdint>

#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {

/// Whether this code may run: kernels that need more than sm_75 are empty below it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define LMDEPLOY_HAS_MMA 0
#else
#define LMDEPLOY_HAS_MMA 1
#endif

/// c[16, 8] += a[16, 16] * b[16, 8]. Lane l holds c of rows l/4 (c[0], c[1]) and l/4 + 8, columns l%4*2 + {0,
/// 1}; a of the same rows, columns l%4*2 + {0, 1} (a[0], a[1]) and 8 more (a[2], a[3]); b of rows l%4*2 + {0,
/// 1} (b0) and 8 more (b1), column l/4.
template <typename T>
__device__ void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if LMDEPLOY_HAS_MMA
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/// Four 8x8 matrices of 16-bit elements; lane l gives row l%8 of matrix l/8. Lane l gets row l/4, columns
/// l%4*2 + {0, 1} of each.
__device__ inline void load_matrices(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same of their transposes.
__device__ inline void load_transposed(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

/// Two of them; lanes 0 to 15 give the rows.
__device__ inline void load_transposed(uint32_t (&m)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(m[0]), "=r"(m[1])
               : "r"(shared_address(row))
               : "memory");
}

/// The transpose of an 8x8 matrix of 16-bit elements of which lane l has row l/4, columns l%4*2 + {0, 1}.
__device__ inline uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

/// 16 bytes of shared memory.
__device__ inline uint4 load_shared(uint32_t from) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from));
  return v;
}

/// Starts a copy of 16 bytes to shared memory; of `bytes` (0 or 16), the rest is zeros.
__device__ inline void copy_async(uint32_t to, const void* from, int bytes) {
#if LMDEPLOY_HAS_MMA
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
#else
  __trap();
#endif
}
__device__ inline void copy_async(void* to, const void* from, int bytes) {
  copy_async(shared_address(to), from, bytes);
}
/// The same of 4 or 8 bytes, or of zeros.
template <int kBytes>
__device__ void copy_few_async(void* to, const void* from, bool wanted) {
#if LMDEPLOY_HAS_MMA
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared_address(to)), "l"(from),
               "n"(kBytes), "r"(wanted ? kBytes : 0));
#else
  __trap();
#endif
}
/// Ends a group of copies.
__device__ inline void commit_copies() {
#if LMDEPLOY_HAS_MMA
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits until all groups but the last kLeft have arrived.
template <int kLeft>
__device__ void wait_for_copies() {
#if LMDEPLOY_HAS_MMA
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
#endif
}

/// 2^x, to a relative 2^-22.
__device__ inline float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// Two numbers in 16 bits each, the first one low.
template <typename T>
__device__ uint32_t pack(float first, float second) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<const uint32_t*>(&both);
  }
}
template <typename T>
__device__ float2 unpack(uint32_t both) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&both));
  else
    return {__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u)};
}

}  // namespace lmdeploy::cuda
