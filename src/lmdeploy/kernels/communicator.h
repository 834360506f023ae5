// What ranks of tensor parallelism do together: each computes with its own Kernels, in a thread of its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// One rank's side of a RankGroup, for that rank's thread. All ranks make the same calls in the same order;
/// tensors are in the memory of the rank's Kernels, whose ops before and after a call see it in its place.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int64_t rank() const = 0;
  /// x becomes the sum of all ranks' x, added up in the order of the ranks in f32 (f64 where x is), and
  /// rounded once: the same bits on every rank. Contiguous rows.
  virtual void all_reduce_sum(TensorView x) = 0;
  /// out[t, r * x.cols() + i] = x[t, i] of rank r, as far as `out` has columns. Only rank 0 has an `out`; the
  /// others' is not looked at.
  virtual void gather_columns(TensorView out, ConstTensorView x) = 0;
};

/// Another rank is missing: which, and in which step.
class MissingRank final : public Error {
 public:
  explicit MissingRank(const std::string& message) : Error(ErrorCode::kInternal, message) {}
};

/// Ranks that compute steps together. One that is missing ends the step of all others with MissingRank; after
/// that another step may begin.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int64_t num_ranks() const = 0;
  virtual Communicator& communicator(int64_t rank) = 0;
  /// The calling thread is going to call the rank's Kernels, after those of another rank or for the first
  /// time.
  virtual void enter(int64_t rank) const = 0;
  /// How long a rank waits for another.
  virtual std::chrono::milliseconds timeout() const = 0;
  /// For messages about a rank that is missing: "; try ...", or "".
  virtual std::string what_to_try() const { return ""; }
  /// While no rank computes.
  virtual void begin_step(int64_t step) = 0;
  /// From any thread: `rank` is not going to make its next call, because of `why`. The others wait no longer.
  virtual void leave(int64_t rank, const std::string& why) = 0;
};

/// Of back ends that compute in host memory: f32 and f64.
std::unique_ptr<RankGroup> make_host_rank_group(int64_t num_ranks, std::chrono::milliseconds timeout);

class Kernels;
struct RankOptions {
  std::chrono::milliseconds timeout{120'000};
  /// Sums of more than 4 MiB by NCCL, in its order and rounding: the same bits on every rank, not those of
  /// the order of the ranks in f32. Each rank needs a device of its own.
  bool nccl = false;
  /// The devices meet in host memory instead of each other's, which takes longer. So do those that cannot
  /// read each other's memory.
  bool through_host = false;
};
/// Of CUDA back ends, by rank: f32, f16 and bf16, gathered columns in f32. Several may be on one device.
/// Calls can be recorded. Throws Error(kUnsupported) for want of NCCL. The back ends must outlive the group.
std::unique_ptr<RankGroup> make_cuda_rank_group(std::span<const Kernels* const> kernels,
                                                const RankOptions& options);

}  // namespace lmdeploy
