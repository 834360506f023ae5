// The forward pass alone: a model's steps without engine, for benchmarks.
#pragma once

#include <cstdint>
#include <span>

#include "lmdeploy/models/step_runner.h"
#include "lmdeploy/pipeline/loaded_model.h"

namespace lmdeploy {

/// Sequences of one length, stepped by hand.
class ForwardRun {
 public:
  static constexpr int64_t kBlockLen = 64;

  ForwardRun(const LoadedModel& loaded, int64_t batch, int64_t most_tokens)
      : most_step_tokens_(loaded.runtime->engine->config().max_prefill_token_num),
        runner_(*loaded.runtime->model, *loaded.runtime->kernels,
                {.kv_dtype = loaded.runtime->engine->config().kv_dtype,
                 .num_sequences = batch,
                 .max_tokens = most_tokens,
                 .block_len = kBlockLen}),
        batch_(static_cast<size_t>(batch)) {
    for (size_t s = 0; s < batch_; ++s) runner_.start(s, most_tokens);
  }
  /// In as many steps as it needs; logits of the last token.
  void prefill(size_t sequence, std::span<const int> ids) {
    while (!ids.empty()) {
      const size_t count = std::min(ids.size(), static_cast<size_t>(most_step_tokens_));
      const StepRunner::Chunk chunk = {
          .sequence = sequence, .ids = ids.first(count), .num_logits = ids.size() == count ? 1 : 0};
      runner_.step({&chunk, 1});
      ids = ids.subspan(count);
    }
  }
  /// One more token of each sequence.
  void decode(int id) {
    std::vector<StepRunner::Chunk> chunks;
    for (size_t s = 0; s < batch_; ++s) chunks.push_back({.sequence = s, .ids = {&id, 1}});
    runner_.step(chunks);
  }

 private:
  const int64_t most_step_tokens_;
  StepRunner runner_;
  const size_t batch_;
};

}  // namespace lmdeploy
