// Copies of boxes of a matrix to shared memory by the copy engine of a multiprocessor (TMA), and the barriers
// in shared memory that count their bytes. From sm_90 on; elsewhere they trap.
#pragma once

#include <cstdint>

#include "lmdeploy/kernels/cuda/mma.cuh"
#include "lmdeploy/kernels/cuda/tensor_map.h"

namespace lmdeploy::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LMDEPLOY_HAS_TENSOR_COPY 1
#else
#define LMDEPLOY_HAS_TENSOR_COPY 0
#endif

template <typename T>
CUtensorMap describe_matrix(const void* data, int64_t rows, int64_t cols, int64_t box_rows) {
  return describe_matrix(data, std::is_same_v<T, __half>, rows, cols, box_rows);
}

/// A barrier in shared memory (mbarrier) that threads arrive at and copies count down; it has phases, waited
/// for by their parity.
class CopyBarrier {
 public:
  /// By one thread; then publish_barriers() and a barrier of the block.
  __device__ void init(int arrivals) {
#if LMDEPLOY_HAS_TENSOR_COPY
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
#endif
  }
  __device__ void arrive() {
#if LMDEPLOY_HAS_TENSOR_COPY
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory");
#endif
  }
  /// Arrives; the phase ends only when copies have brought so many bytes.
  __device__ void arrive_and_expect(int bytes) {
#if LMDEPLOY_HAS_TENSOR_COPY
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes)
                 : "memory");
#endif
  }
  __device__ void wait(uint32_t parity) {
#if LMDEPLOY_HAS_TENSOR_COPY
    uint32_t done = 0;
    do {
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
          : "=r"(done)
          : "r"(address()), "r"(parity)
          : "memory");
    } while (done == 0);
#endif
  }
  __device__ uint32_t address() const { return shared_address(this); }

 private:
  uint64_t state_;
};

/// What init() wrote is to be seen by copies.
__device__ inline void publish_barriers() {
#if LMDEPLOY_HAS_TENSOR_COPY
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Barriers of a ring of kStages places in shared memory that some warps fill, or have filled by copies, time
/// after time, and others read. Uses are counted from 0.
template <int kStages>
class CopyRing {
 public:
  __device__ static int stage(int use) { return use % kStages; }

  /// All threads of the block call it. So many warps arrive at full() of each use, so many release it.
  __device__ void init(int writers, int readers) {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) full_[i].init(writers), empty_[i].init(readers);
      publish_barriers();
    }
    __syncthreads();
  }
  /// What copies of this use are told to arrive at.
  __device__ CopyBarrier& full(int use) { return full_[stage(use)]; }
  /// Until the use before this one of the same place has been released.
  __device__ void wait_for_place(int use) {
    if (use >= kStages) empty_[stage(use)].wait((use / kStages - 1) & 1);
  }
  __device__ void wait_for_copies(int use) { full_[stage(use)].wait(use / kStages & 1); }
  /// By a warp that has read it: all lanes.
  __device__ void release(int use) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) empty_[stage(use)].arrive();
  }

 private:
  CopyBarrier full_[kStages], empty_[kStages];
};

/// Starts the copy of so many bytes; all are multiples of 16.
__device__ inline void copy_bytes(uint32_t to, const void* from, int bytes, CopyBarrier& arrived) {
#if LMDEPLOY_HAS_TENSOR_COPY
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(arrived.address())
      : "memory");
#else
  __trap();
#endif
}

/// Starts the copy of the box at `column`, `row` of the matrix.
__device__ inline void copy_box(uint32_t to, const CUtensorMap& matrix, int column, int row,
                                CopyBarrier& arrived) {
#if LMDEPLOY_HAS_TENSOR_COPY
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(&matrix), "r"(column), "r"(row), "r"(arrived.address())
      : "memory");
#else
  __trap();
#endif
}

}  // namespace lmdeploy::cuda
