// Products that four warps (a warpgroup) make together on tensor cores and that read their second factor from
// shared memory themselves: Hopper's wgmma. Only in code for sm_90a; elsewhere they trap.
#pragma once

#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {

/// Whether this code has them.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LMDEPLOY_HAS_WGMMA 1
#else
#define LMDEPLOY_HAS_WGMMA 0
#endif

/// Rows of 128 bytes in shared memory as wgmma reads them fastest: eight rows are 1024 bytes, at a multiple
/// of 1024, and the 16-byte chunk c of row r lies at chunk c ^ r % 8.
constexpr int kSwizzledRow = 128, kSwizzledRows = 8 * kSwizzledRow;
__device__ inline int swizzled(int row, int chunk) { return row * kSwizzledRow + ((chunk ^ row % 8) * 16); }

/// Such rows as wgmma takes them, from shared memory `address` on.
struct SwizzledMatrix {
  uint32_t place, strides;

  /// `next_rows`: bytes from eight rows to the next eight. `next_columns`: from 64 elements of a row to the
  /// next 64, where rows are what is summed over.
  __device__ SwizzledMatrix(uint32_t address, int next_rows, int next_columns)
      : place(address >> 4 | static_cast<uint32_t>(next_columns >> 4) << 16),
        strides(kSwizzle128 | static_cast<uint32_t>(next_rows >> 4)) {}
  __device__ SwizzledMatrix operator+(int bytes) const {
    SwizzledMatrix moved = *this;
    moved.place += static_cast<uint32_t>(bytes >> 4);
    return moved;
  }
  __device__ uint64_t bits() const { return uint64_t{strides} << 32 | place; }

 private:
  static constexpr uint32_t kSwizzle128 = 1u << 30;
};

/// Keeps the compiler from moving what it does with `d` across this place: before the first product that adds
/// to it and after the wait for the last one.
template <int kCount>
__device__ void hold(float (&d)[kCount][4]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(d[n][i])::"memory");
}

/// Before a warpgroup's first product, and after its registers have been written by other instructions.
__device__ inline void begin_products() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Ends a group of products.
__device__ inline void commit_products() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits until all groups but the last kLeft are done.
template <int kLeft>
__device__ void wait_for_products() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
#endif
}
/// What this thread wrote to shared memory is to be seen by products: then a barrier.
__device__ inline void show_to_products() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

constexpr int kGroupThreads = 128;  // of a warpgroup

/// A block whose last warpgroup only has copies made: registers of a thread of that one, what all begin with,
/// and what a thread of the other kGroups has when they have got what the last one gives away.
constexpr int kReaderRegisters = 24;
template <int kGroups>
constexpr int kFirstRegisters = 65536 / ((kGroups + 1) * kGroupThreads) / 8 * 8;
template <int kGroups, int kReader = kReaderRegisters>
constexpr int kRegistersBesideReader = (kFirstRegisters<kGroups> * (kGroups + 1) - kReader) / kGroups / 8 * 8;

/// All warps of a warpgroup from now on have kCount registers a thread: more than they began with, and those
/// that another one gave away.
template <int kCount>
__device__ void take_registers() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}
template <int kCount>
__device__ void give_registers() {
#if LMDEPLOY_HAS_WGMMA
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
#endif
}

#if LMDEPLOY_HAS_WGMMA
#define LMDEPLOY_D4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define LMDEPLOY_D16(n) LMDEPLOY_D4(n), LMDEPLOY_D4(n + 1), LMDEPLOY_D4(n + 2), LMDEPLOY_D4(n + 3)
#define LMDEPLOY_SHARED_64(TYPE)                                                               \
  asm volatile(                                                                                \
      "{.reg .pred p; setp.ne.b32 p, %34, 0;"                                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                              \
      " {"                                                                                     \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
      "%24,%25,%26,%27,%28,%29,%30,%31"                                                        \
      "}, %32, %33, p, 1, 1, 0, %35;}"                                                         \
      : LMDEPLOY_D16(0), LMDEPLOY_D16(4)                                                       \
      : "l"(a.bits()), "l"(b.bits()), "r"(static_cast<int>(add)), "n"(kTransposed))
#define LMDEPLOY_REGISTERS_64(TYPE)                                                            \
  asm volatile(                                                                                \
      "{.reg .pred p; setp.ne.b32 p, %37, 0;"                                                  \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." TYPE "." TYPE                              \
      " {"                                                                                     \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23," \
      "%24,%25,%26,%27,%28,%29,%30,%31"                                                        \
      "}, {%32,%33,%34,%35}, %36, p, 1, 1, %38;}"                                              \
      : LMDEPLOY_D16(0), LMDEPLOY_D16(4)                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "r"(static_cast<int>(add)), \
        "n"(kTransposed))
#define LMDEPLOY_REGISTERS_128(TYPE)                                                                     \
  asm volatile(                                                                                          \
      "{.reg .pred p; setp.ne.b32 p, %69, 0;"                                                            \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." TYPE "." TYPE                                       \
      " {"                                                                                               \
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"           \
      "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"                                  \
      "}, {%64,%65,%66,%67}, %68, p, 1, 1, %70;}"                                                        \
      : LMDEPLOY_D16(0), LMDEPLOY_D16(4), LMDEPLOY_D16(8), LMDEPLOY_D16(12)                              \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "r"(static_cast<int>(add)),           \
        "n"(kTransposed))
#endif

/// Starts d[64, 8 * kCount] (+)= a[64, 16] * b[16, 8 * kCount]; without `add` d was anything. Warp w of the
/// group has rows 16 * w to 16 * w + 15 of d, and of a in registers, as in mma(). a in shared memory:
/// its rows; b: of its columns, or, kTransposed, of its 16 rows. Neither d nor a may be
/// touched before the wait.
template <typename T, int kTransposed, int kCount>
__device__ void multiply_group(float (&d)[kCount][4], const uint32_t (&a)[4], SwizzledMatrix b, bool add) {
  static_assert(kCount == 8 || kCount == 16);
#if LMDEPLOY_HAS_WGMMA
  constexpr bool kHalf = std::is_same_v<T, __half>;
  if constexpr (kCount == 8 && kHalf)
    LMDEPLOY_REGISTERS_64("f16");
  else if constexpr (kCount == 8)
    LMDEPLOY_REGISTERS_64("bf16");
  else if constexpr (kHalf)
    LMDEPLOY_REGISTERS_128("f16");
  else
    LMDEPLOY_REGISTERS_128("bf16");
#else
  __trap();
#endif
}
template <typename T, int kTransposed>
__device__ void multiply_group(float (&d)[8][4], SwizzledMatrix a, SwizzledMatrix b, bool add) {
#if LMDEPLOY_HAS_WGMMA
  if constexpr (std::is_same_v<T, __half>)
    LMDEPLOY_SHARED_64("f16");
  else
    LMDEPLOY_SHARED_64("bf16");
#else
  __trap();
#endif
}

}  // namespace lmdeploy::cuda
