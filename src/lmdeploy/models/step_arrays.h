// What each token of a step needs besides its id: position, cache slot, rope table.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/models/rope.h"

namespace lmdeploy {

/// Rope tables of recent sessions, stored as rope_table() reads them. Tables of one step are never evicted
/// within it; the store only grows past kMostKept when one step needs more.
class RopeTableCache {
 public:
  static constexpr size_t kMostKept = 64;

  RopeTableCache(const RopeSpec& spec, Allocator& allocator);
  void begin_step() { ++step_; }
  /// Row of inv_freq() and scale(), valid until the next step.
  int32_t find(int64_t rope_length);
  ConstTensorView inv_freq() const;  // [tables, rotary_dim / 2] f64
  ConstTensorView scale() const;     // [tables] f64

 private:
  struct Entry {
    int64_t key = 0;
    int64_t last_step = 0;
  };
  size_t free_row();
  void grow();

  RopeSpec spec_;
  Allocator& allocator_;
  std::vector<Entry> entries_;
  Tensor inv_freq_, scale_;  // of the capacity; entries_.size() rows are in use
  int64_t step_ = 0;
};

/// The largest step that the work buffers hold.
struct StepLimits {
  int64_t tokens = 0;
  int64_t logit_rows = 0;
};

/// The input must be sound: an LMD_CHECK stops a step that reaches outside its arrays, cache or limits.
void check_step(const StepInput& input, const KvCacheView& cache, const KvLayout& layout, size_t num_groups,
                const StepLimits& limits);

/// Host memory of a step as the ops take it: [size] i32.
ConstTensorView view_of(std::span<const int32_t> values);

/// Arrays of one step, in buffers allocated once.
class StepArrays {
 public:
  StepArrays(int64_t max_tokens, size_t num_groups, Allocator& allocator);
  void fill(const StepInput& input, int64_t block_len);
  /// The rows of `rope`'s tables: [tokens] i32, valid until the next call.
  ConstTensorView rope_rows(const StepInput& input, RopeTableCache& rope);

  ConstTensorView positions() const;          // [tokens] i32
  ConstTensorView slots(size_t group) const;  // [tokens] i64
  /// Query starts, key counts and the group's block tables of the step that fill() was given.
  AttentionBatch batch(const StepInput& input, size_t group) const;

 private:
  Tensor positions_, slots_, rope_rows_;
  int64_t tokens_ = 0;
};

}  // namespace lmdeploy
