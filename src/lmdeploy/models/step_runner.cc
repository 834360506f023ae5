// Builds StepInputs for a handful of sequences.
#include "lmdeploy/models/step_runner.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {

StepRunner::StepRunner(Model& model, const Kernels& kernels, const Options& options)
    : model_(model),
      kernels_(kernels),
      max_blocks_((options.max_tokens + options.block_len - 1) / options.block_len),
      sequences_(static_cast<size_t>(options.num_sequences)) {
  cache_.layout = model.kv_layout(options.kv_dtype, options.block_len);
  cache_.num_blocks = max_blocks_ * options.num_sequences * static_cast<int64_t>(model.kv_groups().size());
  memory_ = Tensor(DType::kU8, {cache_.num_blocks, cache_.layout.block_bytes()}, kernels.allocator());
  cache_.data = memory_.view().data();
  for (Allocator* memory : model.other_ranks_memory()) {
    other_memory_.emplace_back(DType::kU8, memory_.shape(), *memory);
    other_caches_.push_back(other_memory_.back().view().data());
  }
}

void StepRunner::start(size_t sequence, int64_t rope_length) {
  sequences_.at(sequence) = {.rope_length = static_cast<int32_t>(rope_length)};
}

void StepRunner::rewind(size_t sequence, int64_t length) {
  int32_t& held = sequences_.at(sequence).length;
  LMD_CHECK(length >= 0 && length <= held, "to ", length, " of ", held, " tokens");
  held = static_cast<int32_t>(length);
}

TensorView StepRunner::start_step(std::span<const Chunk> chunks) {
  std::vector<int32_t> ids, query_start = {0}, kv_len, rope_length, logit_rows;
  for (const Chunk& chunk : chunks) {
    Sequence& sequence = sequences_.at(chunk.sequence);
    ids.insert(ids.end(), chunk.ids.begin(), chunk.ids.end());
    const auto end = static_cast<int32_t>(ids.size());
    sequence.length += static_cast<int32_t>(chunk.ids.size());
    LMD_CHECK(sequence.length <= max_blocks_ * cache_.layout.block_len, sequence.length, " tokens");
    query_start.push_back(end);
    kv_len.push_back(sequence.length);
    rope_length.push_back(sequence.rope_length);
    for (int64_t row = end - chunk.num_logits; row < end; ++row)
      logit_rows.push_back(static_cast<int32_t>(row));
  }
  const std::vector<int32_t> block_table = block_tables(chunks);
  StepInput input;
  input.token_ids = ids;
  input.query_start = query_start;
  input.kv_len = kv_len;
  input.block_table = block_table;
  input.max_blocks = max_blocks_;
  input.rope_length = rope_length;
  input.logit_rows = logit_rows;
  input.other_caches = other_caches_;
  return model_.forward(input, cache_);
}

// Blocks of the sequences and groups alternate and fall: neighbours in a sequence are not neighbours in
// memory.
std::vector<int32_t> StepRunner::block_tables(std::span<const Chunk> chunks) const {
  std::vector<int32_t> tables;
  const size_t num_groups = model_.kv_groups().size();
  for (size_t group = 0; group < num_groups; ++group) {
    for (const Chunk& chunk : chunks) {
      for (int64_t b = 0; b < max_blocks_; ++b) {
        const size_t rank =
            (static_cast<size_t>(b) * sequences_.size() + chunk.sequence) * num_groups + group;
        tables.push_back(static_cast<int32_t>(cache_.num_blocks - 1 - static_cast<int64_t>(rank)));
      }
    }
  }
  return tables;
}

std::vector<int> StepRunner::greedy(size_t sequence, std::span<const int> prompt, int64_t count) {
  start(sequence, static_cast<int64_t>(prompt.size()));
  std::vector<int> ids;
  std::span<const int> next = prompt;
  while (static_cast<int64_t>(ids.size()) < count) {
    const Chunk chunk = {.sequence = sequence, .ids = next};
    ids.push_back(argmax(step({&chunk, 1}), 0));
    next = {&ids.back(), 1};
  }
  return ids;
}

int argmax(ConstTensorView rows, int64_t row) {
  int64_t best = 0;
  for (int64_t i = 1; i < rows.cols(); ++i)
    if (rows.at(row, i) > rows.at(row, best)) best = i;
  return static_cast<int>(best);
}

}  // namespace lmdeploy
