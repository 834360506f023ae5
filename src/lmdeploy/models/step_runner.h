// Steps a model by hand over a KV cache of its own: for tests and tools. The engine does without it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// A fixed number of sequences, each with room for `max_tokens` tokens.
class StepRunner {
 public:
  struct Options {
    DType kv_dtype = DType::kF32;
    int64_t num_sequences = 1;
    int64_t max_tokens = 0;  // of each sequence
    int64_t block_len = 16;
  };
  /// Ids that one step appends to a sequence.
  struct Chunk {
    size_t sequence = 0;
    std::span<const int> ids;
    int64_t num_logits = 1;  // logits of the last that many ids are wanted
  };

  /// `model` must outlive the runner.
  StepRunner(Model& model, const Kernels& kernels, const Options& options);

  /// Empties a sequence. `rope_length`: see StepInput; for a whole prompt its length.
  void start(size_t sequence, int64_t rope_length);
  /// Forgets all but the first `length` tokens of a sequence.
  void rewind(size_t sequence, int64_t length);
  /// Runs one step; at most one chunk of each sequence. Logits [sum of num_logits, vocab_size] in the order
  /// of the chunks, in host memory, valid until the next step.
  ConstTensorView step(std::span<const Chunk> chunks) {
    return kernels_.to_host(start_step(chunks), logits_);
  }
  /// The same without waiting for the device, in whose memory the logits are.
  TensorView start_step(std::span<const Chunk> chunks);
  /// Sequence `sequence` from the start: the prompt in one step, then `count` ids by largest logit (the
  /// lowest of equals). Ends are not honoured.
  std::vector<int> greedy(size_t sequence, std::span<const int> prompt, int64_t count);

 private:
  struct Sequence {
    int32_t length = 0;
    int32_t rope_length = 0;
  };

  std::vector<int32_t> block_tables(std::span<const Chunk> chunks) const;

  Model& model_;
  const Kernels& kernels_;
  int64_t max_blocks_;  // of each sequence
  Tensor memory_;
  std::vector<Tensor> other_memory_;  // of the other ranks of a sharded model
  std::vector<std::byte*> other_caches_;
  Tensor logits_;
  KvCacheView cache_;
  std::vector<Sequence> sequences_;
};

/// Column of the largest element of a row; the lowest of equals.
int argmax(ConstTensorView rows, int64_t row);

}  // namespace lmdeploy
