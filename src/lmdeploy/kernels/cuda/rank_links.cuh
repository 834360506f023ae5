// How blocks of threads of several ranks' kernels meet: mail in the sender's memory, a flag in the reader's;
// both in pinned host memory where devices do not read each other's.
//
// Block b of each rank meets block b of the others, and has a mailbox of its own with two slots. In meeting e
// it writes slot e % 2, tells all ranks e, and reads their slots when they have told it e. When all have told
// e + 1 they have read what was written for e, so that slot e % 2 is free for e + 2. Meetings are counted in
// device memory: a recorded kernel goes on counting.
#pragma once

#include <cstdint>

#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {

constexpr int kMostLinked = 16;  // ranks
constexpr int kLinkThreads = 256, kLinkBlocks = 64;
constexpr int kMostPacks = 16;  // 16-byte accesses of a thread in a meeting
constexpr int64_t kSlotBytes = int64_t{16} * kLinkThreads * kMostPacks;
constexpr int64_t kMailBytes = 2 * kSlotBytes * kLinkBlocks;  // of a rank

/// In host memory that all devices see; the values are ints.
struct LinkState {
  volatile int left;     // a rank will not come any more
  volatile int missing;  // 1 + a rank that has not come in time
};

/// What a rank's kernel knows of all ranks.
struct RankLinks {
  std::byte* mail[kMostLinked];  // kMailBytes of each rank: [block][slot], on its device or the host
  uint64_t* told[kMostLinked];   // of each rank: [block][rank], what that rank has told it
  uint64_t* meetings;            // own: [block], held so far
  LinkState* state;
  int64_t timeout_ns;
  int rank, num_ranks;
};

__device__ inline std::byte* slot_of(const RankLinks& links, int rank, uint64_t meeting) {
  return links.mail[rank] + (blockIdx.x * 2 + meeting % 2) * kSlotBytes;
}

__device__ inline void tell(uint64_t* flag, uint64_t meeting) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(meeting) : "memory");
}
__device__ inline uint64_t told(const uint64_t* flag) {
  uint64_t meeting;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(meeting) : "l"(flag) : "memory");
  return meeting;
}
__device__ inline int64_t now_ns() {
  int64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

// Waits for one rank; false if it does not come.
__device__ inline bool wait_for_rank(const RankLinks& links, int rank, uint64_t meeting) {
  constexpr int kLooks = 1024;  // between two at the clock and at host memory
  const uint64_t* flag = links.told[links.rank] + blockIdx.x * kMostLinked + rank;
  const int64_t start = now_ns();
  while (true) {
    for (int i = 0; i < kLooks; ++i)
      if (told(flag) >= meeting) return true;
    if (links.state->left != 0) return false;
    if (now_ns() - start < links.timeout_ns) continue;
    links.state->missing = 1 + rank;
    return false;
  }
}

/// All threads of a block, after they have written their mail. False, for all of them, if a rank is missing.
__device__ inline bool meet(const RankLinks& links, uint64_t meeting) {
  const int other = static_cast<int>(threadIdx.x);
  bool is_here = true;
  __syncthreads();
  if (other < links.num_ranks) {
    __threadfence_system();
    tell(links.told[other] + blockIdx.x * kMostLinked + links.rank, meeting);
    is_here = wait_for_rank(links, other, meeting);
  }
  return __syncthreads_and(is_here) != 0;
}

}  // namespace lmdeploy::cuda
