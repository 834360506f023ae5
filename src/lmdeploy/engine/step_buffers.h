// The arrays of one step, as the model reads them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lmdeploy/engine/scheduler.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// Keeps its memory from step to step.
class StepBuffers {
 public:
  /// Valid until the next call; `other_caches` as StepInput has them.
  StepInput fill(std::span<const StepEntry> entries, size_t num_groups,
                 std::span<std::byte* const> other_caches);

 private:
  void add(const StepEntry& entry);
  void fill_block_table(std::span<const StepEntry> entries, size_t num_groups, int64_t max_blocks);

  std::vector<int32_t> token_ids_, query_start_, kv_len_, rope_length_, logit_rows_;
  std::vector<int32_t> draws_;        // [tokens], or empty
  std::vector<int32_t> block_table_;  // [groups, sequences, max_blocks]
};

}  // namespace lmdeploy
