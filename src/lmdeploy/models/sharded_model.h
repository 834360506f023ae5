// A model whose ranks each have a share of every layer, and compute every step together.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// Each rank has a thread, in which its share makes its part of a step; forward() is called by another. A
/// rank that fails ends the step of all; one that does not come back within the group's timeout, or none
/// within five of them, ends it too, and then there are no further steps.
class ShardedModel final : public Model {
 public:
  /// `shares`: by rank, each with the group's communicator of that rank. `kernels` must outlive the model.
  ShardedModel(DecoderSpec spec, std::vector<std::unique_ptr<Model>> shares,
               std::span<const Kernels* const> kernels, std::unique_ptr<RankGroup> group);
  ~ShardedModel() override;

  const DecoderSpec& spec() const override { return spec_; }
  /// Of one rank.
  KvLayout kv_layout(DType dtype, int64_t block_len) const override {
    return first().kv_layout(dtype, block_len);
  }
  std::span<const KvGroup> kv_groups() const override { return first().kv_groups(); }
  TensorView forward(const StepInput& input, const KvCacheView& cache) override;
  ConstTensorView hidden_states() const override { return first().hidden_states(); }
  size_t weight_bytes() const override;
  size_t buffer_bytes() const override;
  StepWork step_work(const StepShape& shape, DType kv_dtype) const override;
  std::vector<Allocator*> other_ranks_memory() const override;
  size_t cache_memory(const Kernels& kernels) const override;

 private:
  /// As long, in timeouts of the group, all ranks may be at work in one step.
  static constexpr int kMostTimeouts = 5;
  struct Step;
  struct Rank {
    std::unique_ptr<Model> share;
    const Kernels* kernels = nullptr;
    std::thread thread;
    int64_t steps_done = 0;
  };

  const Model& first() const { return *ranks_[0].share; }
  void run_rank(size_t rank);
  void compute(size_t rank, const Step& step);
  void note(const Error& error);
  void wait(std::unique_lock<std::mutex>& lock);
  void join();
  size_t num_done() const;
  std::string ranks_at_work() const;

  const DecoderSpec spec_;
  const std::unique_ptr<RankGroup> group_;
  std::vector<Rank> ranks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<const Step> step_;  // the last one that was begun
  int64_t num_steps_ = 0;             // begun
  TensorView logits_;                 // of the first rank
  std::optional<Error> error_;        // the first in this step
  bool stopping_ = false;
};

}  // namespace lmdeploy
