// Sums over GPUs by NCCL, opened when it is asked for.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "lmdeploy/core/dtype.h"

namespace lmdeploy::cuda {

struct NcclLibrary;

/// A communicator of each rank, in this process. Throws Error: kUnsupported where there is no NCCL, kInternal
/// where it has not started within the timeout.
class Nccl {
 public:
  /// `devices`: by rank, all different.
  Nccl(std::span<const int> devices, std::chrono::milliseconds timeout);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// x [count] of f32, f16 or bf16 becomes the sum, in NCCL's order and rounding, which are the same for all
  /// ranks. Throws MissingRank after abort().
  void all_reduce_sum(int64_t rank, void* x, int64_t count, DType dtype, cudaStream_t stream);
  /// Ends what waits for a rank that will not come. From any thread.
  void abort();
  /// After abort(), while no rank computes: begins anew. What was recorded before must not be run again.
  void restart();
  bool aborted() const { return aborted_; }

 private:
  const NcclLibrary& library_;
  const std::vector<int> devices_;
  const std::chrono::milliseconds timeout_;  // of a start
  std::vector<void*> communicators_;         // by rank
  std::mutex mutex_;                         // of abort()
  std::atomic<bool> aborted_ = false;
};

}  // namespace lmdeploy::cuda
