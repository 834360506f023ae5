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

  explicit RopeTableCache(const RopeSpec& spec) : spec_(spec) {}
  void begin_step() { ++step_; }
  /// Row of inv_freq() and scale(), valid until the next step.
  int32_t find(int64_t rope_length);
  // In host memory.
  ConstTensorView inv_freq() const;  // [tables, rotary_dim / 2] f64
  ConstTensorView scale() const;     // [tables] f64
  /// Rises when a table is added or replaced.
  int64_t version() const { return version_; }

 private:
  struct Entry {
    int64_t key = 0;
    int64_t last_step = 0;
  };
  size_t free_row();
  void grow();

  RopeSpec spec_;
  std::vector<Entry> entries_;
  Tensor inv_freq_, scale_;  // of the capacity; entries_.size() rows are in use
  int64_t step_ = 0;
  int64_t version_ = 0;
};

/// The largest step that the work buffers hold.
struct StepLimits {
  int64_t tokens = 0;
  int64_t logit_rows = 0;
};

/// The input must be sound: an LMD_CHECK stops a step that reaches outside its arrays, cache or limits.
void check_step(const StepInput& input, const KvCacheView& cache, const KvLayout& layout, size_t num_groups,
                const StepLimits& limits);

/// What each step of a model has besides its StepInput.
struct StepExtras {
  RopeTableCache *rope = nullptr, *local_rope = nullptr;  // nullptr: the model has none
  int64_t logn_length = 0;                                // DecoderSpec::logn_length
};

/// Arrays of one step as the ops read them. They are laid out in one piece of host memory, which a device
/// gets in one copy. Valid until the next fill().
class StepArrays {
 public:
  /// `kernels` must outlive the arrays.
  StepArrays(size_t num_groups, const Kernels& kernels);
  void fill(const StepInput& input, int64_t block_len, const StepExtras& extras);

  ConstTensorView token_ids() const { return view(token_ids_); }    // [tokens] i32
  ConstTensorView logit_rows() const { return view(logit_rows_); }  // [rows] i32
  ConstTensorView positions() const { return view(positions_); }    // [tokens] i32
  ConstTensorView rope_rows() const { return view(rope_rows_); }    // [tokens] i32: rows of the rope's tables
  ConstTensorView local_rope_rows() const { return view(local_rope_rows_); }
  ConstTensorView logn() const { return view(logn_); }  // [tokens] f32
  ConstTensorView slots(size_t group) const;            // [tokens] i64
  /// Query starts, key counts and the group's block tables.
  AttentionBatch batch(size_t group) const;
  /// Of the device's copy, which grows.
  int64_t device_bytes() const { return static_cast<int64_t>(device_.bytes()); }

 private:
  struct Section {
    int64_t offset = 0;
    DType dtype = DType::kI32;
    Shape shape = {0};
  };
  void take_block_table(const StepInput& input);
  void lay_out(const StepInput& input, const StepExtras& extras);
  void compute_positions(const StepInput& input);
  void compute_slots(const StepInput& input, int64_t block_len);
  void compute_rope_rows(const StepInput& input, RopeTableCache& rope, const Section& rows);
  void compute_logn(int64_t length);
  void hand_over();

  ConstTensorView view(const Section& section) const {
    return {data_ + section.offset, section.dtype, section.shape};
  }
  template <typename T>
  std::span<T> host(const Section& section) const {
    return {reinterpret_cast<T*>(host_.view().data() + section.offset),
            static_cast<size_t>(section.shape.numel())};
  }

  const Kernels& kernels_;
  int64_t num_groups_;
  Section token_ids_, query_start_, kv_len_, block_table_, logit_rows_;  // copies of the input
  Section positions_, slots_, rope_rows_, local_rope_rows_, logn_;
  Section draws_;              // the last: whether there are any moves nothing
  int64_t bytes_ = 0;          // that the sections take
  Tensor host_, device_;       // bytes; device_ stays empty where ops read host memory
  std::byte* data_ = nullptr;  // of the sections as the ops read them
};

}  // namespace lmdeploy
