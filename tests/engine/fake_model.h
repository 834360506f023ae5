// A model without weights whose next token depends on every token before it, read back through the KV cache.
//
// Each slot holds its token, its position and a hash of all tokens up to it. A step checks all slots of each
// of its sequences against each other before it writes the new ones: a block that is wrong, stale or
// overwritten makes the step fail.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/models/model.h"

namespace lmdeploy::testing {

struct FakeOptions {
  int64_t vocab_size = 64;
  int64_t max_positions = 4096;
  RopeSpec rope;
  int64_t max_step_tokens = 1 << 20;  // a larger step fails
  int64_t max_logit_rows = 512;
};

struct StepRecord {
  int64_t tokens = 0;
  int64_t sequences = 0;
  int64_t prompt_tokens = 0;  // of sequences with more than one token
};

class FakeModel : public Model {
 public:
  explicit FakeModel(const FakeOptions& options = {});

  const DecoderSpec& spec() const override { return spec_; }
  KvLayout kv_layout(DType dtype, int64_t block_len) const override;
  std::span<const KvGroup> kv_groups() const override { return groups_; }
  ConstTensorView forward(const StepInput& input, const KvCacheView& cache) override;
  size_t weight_bytes() const override { return 0; }

  /// The logits after `tokens` of a session that began with a prompt of `rope_length` tokens.
  std::vector<float> logits_after(std::span<const int> tokens, int64_t rope_length) const;
  /// Greedy continuation.
  std::vector<int> generate(std::vector<int> tokens, int64_t count) const;

  /// When set, names the next token of a history; its logit is the highest by far.
  std::function<int(std::span<const int> tokens)> script;
  /// Called before each step, in the engine's thread; may throw.
  std::function<void(const StepInput&)> before_step;
  /// The logits after this token are NaN.
  int poison_token = -1;

  std::vector<StepRecord> steps;

 private:
  void check_limits(const StepInput& input) const;
  void run_sequence(const StepInput& input, const KvCacheView& cache, size_t s);
  void fill_logits(std::span<const int> tokens, uint64_t hash, float* row) const;

  FakeOptions options_;
  DecoderSpec spec_;
  std::vector<KvGroup> groups_ = {KvGroup{}};
  Tensor logits_;  // [max_logit_rows, vocab_size]
  int64_t next_row_ = 0;
};

}  // namespace lmdeploy::testing
