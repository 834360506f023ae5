// StepPlan to StepInput.
#include "lmdeploy/engine/step_buffers.h"

#include <algorithm>

namespace lmdeploy {

StepInput StepBuffers::fill(const StepPlan& plan) {
  for (auto* array : {&token_ids_, &kv_len_, &rope_length_, &logit_rows_}) array->clear();
  query_start_.assign(1, 0);
  int64_t max_blocks = 0;
  for (const StepEntry& entry : plan.entries) {
    add(entry);
    max_blocks = std::max(max_blocks, entry.sequence->blocks.size());
  }
  block_table_.assign(plan.entries.size() * static_cast<size_t>(max_blocks), 0);
  auto line = block_table_.begin();
  for (const StepEntry& entry : plan.entries) {
    const BlockList& blocks = entry.sequence->blocks;
    for (int64_t i = 0; i < blocks.size(); ++i) line[i] = blocks[i].id();
    line += max_blocks;
  }
  return {.token_ids = token_ids_,
          .query_start = query_start_,
          .kv_len = kv_len_,
          .block_table = block_table_,
          .max_blocks = max_blocks,
          .rope_length = rope_length_,
          .logit_rows = logit_rows_};
}

void StepBuffers::add(const StepEntry& entry) {
  const auto begin = entry.sequence->tokens.begin() + entry.first;
  token_ids_.insert(token_ids_.end(), begin, begin + entry.count);
  const auto end = static_cast<int32_t>(token_ids_.size());
  query_start_.push_back(end);
  kv_len_.push_back(static_cast<int32_t>(entry.first + entry.count));
  rope_length_.push_back(entry.sequence->rope_length);
  for (int64_t i = entry.num_rows; i > 0; --i) logit_rows_.push_back(end - static_cast<int32_t>(i));
}

}  // namespace lmdeploy
