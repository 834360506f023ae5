// StepPlan to StepInput.
#include "lmdeploy/engine/step_buffers.h"

#include <algorithm>

namespace lmdeploy {

StepInput StepBuffers::fill(std::span<const StepEntry> entries, size_t num_groups,
                            std::span<std::byte* const> other_caches) {
  for (auto* array : {&token_ids_, &draws_, &kv_len_, &rope_length_, &logit_rows_}) array->clear();
  query_start_.assign(1, 0);
  int64_t max_blocks = 0;
  for (const StepEntry& entry : entries) {
    add(entry);
    for (const BlockList& list : entry.sequence->blocks) max_blocks = std::max(max_blocks, list.end());
  }
  if (!draws_.empty()) draws_.resize(token_ids_.size(), Sequence::kKnown);
  fill_block_table(entries, num_groups, max_blocks);
  return {.token_ids = token_ids_,
          .draws = draws_,
          .query_start = query_start_,
          .kv_len = kv_len_,
          .block_table = block_table_,
          .max_blocks = max_blocks,
          .rope_length = rope_length_,
          .logit_rows = logit_rows_,
          .other_caches = other_caches};
}

// Blocks that a window group has let go of are 0: nobody reads them.
void StepBuffers::fill_block_table(std::span<const StepEntry> entries, size_t num_groups,
                                   int64_t max_blocks) {
  block_table_.assign(num_groups * entries.size() * static_cast<size_t>(max_blocks), 0);
  auto line = block_table_.begin();
  for (size_t group = 0; group < num_groups; ++group) {
    for (const StepEntry& entry : entries) {
      const BlockList& list = entry.sequence->blocks[group];
      for (int64_t i = list.first(); i < list.end(); ++i) line[i] = list[i].id();
      line += max_blocks;
    }
  }
}

void StepBuffers::add(const StepEntry& entry) {
  const auto begin = entry.sequence->tokens.begin() + entry.first;
  token_ids_.insert(token_ids_.end(), begin, begin + entry.count);
  if (entry.completes && entry.sequence->last_draw != Sequence::kKnown) {
    draws_.resize(token_ids_.size(), Sequence::kKnown);
    draws_.back() = entry.sequence->last_draw;
  }
  token_ids_.insert(token_ids_.end(), entry.guesses.begin(), entry.guesses.end());
  const auto num_guesses = static_cast<int64_t>(entry.guesses.size());
  const auto end = static_cast<int32_t>(token_ids_.size());
  query_start_.push_back(end);
  kv_len_.push_back(static_cast<int32_t>(entry.first + entry.count + num_guesses));
  rope_length_.push_back(entry.sequence->rope_length);
  for (int64_t i = entry.num_rows + num_guesses; i > 0; --i)
    logit_rows_.push_back(end - static_cast<int32_t>(i));
}

}  // namespace lmdeploy
