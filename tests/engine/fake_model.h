// A model without weights whose next token depends on every token before it, read back through the KV cache.
//
// Each group of layers has a slot for each token, with the token, its position and a hash of all tokens up to
// it. A step checks all slots that its tokens see, in each group, against each other before it writes the new
// ones: a block that is wrong, stale, overwritten or given back too early makes the step fail.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/models/model.h"

namespace lmdeploy::testing {

struct FakeOptions {
  int64_t vocab_size = 64;
  int64_t max_positions = 4096;
  bool learned_positions = false;
  RopeSpec rope = {};
  int64_t max_step_tokens = 1 << 20;  // a larger step fails
  int64_t max_logit_rows = 512;
  std::vector<int64_t> windows = {0};  // of each group; 0: full
};

/// Models that all engine tests run over.
struct GroupCase {
  const char* name;
  std::vector<int64_t> windows;
  int64_t num_groups() const { return static_cast<int64_t>(windows.size()); }
};
inline const GroupCase kGroupCases[] = {
    {"Full", {0}}, {"Window", {16}}, {"FullAndWindow", {0, 16}}, {"Several", {5, 0, 16, 1}}};
inline void PrintTo(const GroupCase& c, std::ostream* out) { *out << c.name; }
inline std::string name_of(const ::testing::TestParamInfo<GroupCase>& test) { return test.param.name; }

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
  TensorView forward(const StepInput& input, const KvCacheView& cache) override;
  bool takes_drawn_tokens() const override { return drawing != nullptr; }
  /// [rows, 2]: the number of tokens up to the row's, and the last of them.
  ConstTensorView hidden_states() const override { return hidden_.view().slice_rows(0, next_row_); }
  size_t weight_bytes() const override { return 0; }
  size_t buffer_bytes() const override { return 0; }
  StepWork step_work(const StepShape&, DType) const override { return {}; }

  /// The logits after `tokens` of a session that began with a prompt of `first_prompt` tokens.
  std::vector<float> logits_after(std::span<const int> tokens, int64_t first_prompt) const;
  /// Greedy continuation.
  std::vector<int> generate(std::vector<int> tokens, int64_t count) const;

  /// When set, names the next token of a history (-1 where no group sees it); its logit is the highest by
  /// far.
  std::function<int(std::span<const int> tokens)> script;
  /// When set, tokens are taken from what it draws.
  const Kernels* drawing = nullptr;
  /// Called before each step, in the engine's thread; may throw.
  std::function<void(const StepInput&)> before_step;
  /// The logits after this token are NaN.
  int poison_token = -1;

  std::vector<StepRecord> steps;

 private:
  void check_limits(const StepInput& input) const;
  StepInput with_drawn(StepInput input);
  struct History;
  /// What the slots of the first `count` tokens say, where some group sees them at token `count`.
  History read_history(const StepInput& input, const KvCacheView& cache, size_t s, int64_t count) const;
  void run_sequence(const StepInput& input, const KvCacheView& cache, size_t s);
  void fill_logits(std::span<const int> tokens, uint64_t hash, float* row) const;

  FakeOptions options_;
  DecoderSpec spec_;
  std::vector<KvGroup> groups_;
  std::vector<int32_t> ids_;  // of a step with draws
  Tensor logits_;             // [max_logit_rows, vocab_size]
  Tensor hidden_;             // [max_logit_rows, 2]
  int64_t next_row_ = 0;
};

/// Makes `draft` name the best token after what it reads, as `target` has it in a session that begins with
/// it, three times out of four.
void guess_mostly_right(FakeModel& draft, const FakeModel& target);

}  // namespace lmdeploy::testing
