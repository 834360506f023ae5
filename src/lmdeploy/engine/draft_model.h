// A small model of the same vocabulary that guesses what the large one will say.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/engine/kv_pool.h"
#include "lmdeploy/engine/step_buffers.h"
#include "lmdeploy/engine/step_sampler.h"

namespace lmdeploy {

/// What the draft model has read of one request; ends before the model's blocks do. Its tokens end in the
/// latest guesses.
struct DraftSequence {
  Sequence sequence;
  int64_t num_confirmed = 0;  // tokens that were not guesses
};

struct DraftWish {
  DraftSequence* draft = nullptr;
  Sequence* target = nullptr;  // guesses go here
  SampleInput draw = {};       // of the next token; row and tokens are unset
  int64_t count = 0;           // guesses wanted
};

/// Has a pool of blocks of its own. Draws with the random numbers that the large model's tokens will be drawn
/// with, so that equal distributions give equal tokens. One thread.
class DraftModel {
 public:
  /// `config` is the large model's, resolved. `model` and `kernels` must outlive this. Throws
  /// Error(kResourceExhausted) where its pool cannot be had.
  DraftModel(Model& model, const Kernels& kernels, const EngineConfig& config);

  /// Reads what the targets have more than it knows, at most max_prefill_token_num tokens in all: a target
  /// that has more gets no guesses yet, nor does one for which there is no block.
  void guess(std::span<DraftWish> wishes);
  /// Guesses after `length` tokens that the model has positions for.
  int64_t most_guesses(int64_t length) const { return model_.spec().max_positions - length; }
  void check_invariants() const { blocks_.check_invariants(); }

 private:
  void follow_target(DraftSequence& draft, const Sequence& target);
  void choose_rope(Sequence& sequence);
  void read(std::span<DraftWish> wishes);
  void draw(uint64_t position);
  void read_guesses();
  void forward();

  Model& model_;
  BlockGroups groups_;
  KvPool pool_;
  BlockManager blocks_;
  BlockStore store_;
  StepSampler sampler_;
  StepBuffers buffers_;
  StepLogits logits_;
  const int64_t max_step_tokens_;
  StepPlan plan_;
  std::vector<DraftWish*>
      open_;  // whose next guess is drawn from the step's logits, in the order of its rows
  std::vector<SampleInput> samples_;
};

}  // namespace lmdeploy
