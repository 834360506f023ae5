// Guesses the next tokens of decoding requests, so that one step checks several
// (docs/speculative_decoding.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lmdeploy/engine/draft_model.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/engine/guess_policy.h"
#include "lmdeploy/engine/prompt_lookup.h"

namespace lmdeploy {

/// What is known of one request's guesses.
struct GuessState {
  PromptLookup lookup;
  GuessOdds odds;
  std::vector<int> forced;   // what its grammar forces; other guesses are not made then
  int64_t match_length = 0;  // that the guesses of this step go on from
  DraftSequence draft;
};

/// A request whose next token is to be drawn; guesses go to its sequence.
struct GuessTarget {
  Sequence* sequence = nullptr;
  GuessState* state = nullptr;
  SampleInput draw = {};  // of the next token; row and tokens are unset
  int64_t most = 0;       // tokens that may be guessed
};

/// One thread. States of its requests end before it does.
class Speculator {
 public:
  /// `draft_model`: with kDraft, else not looked at; it must outlive the speculator, as `kernels` must.
  Speculator(const EngineConfig& config, Model* draft_model, const Kernels& kernels);

  /// With kNone grammars alone give guesses. Puts guesses that are worth their time into the sequences,
  /// `targets` being all that decode in the next step.
  void guess(std::span<GuessTarget> targets);
  /// `num_drawn` tokens of the sequence have been drawn, as many as `num_accepted` of `guesses` first.
  void learn(GuessState& state, std::span<const int> guesses, int64_t num_drawn, int64_t num_accepted);
  /// A step of decode tokens alone, the guessing included.
  void learn_time(int64_t num_sequences, int64_t num_guesses, int64_t num_accepted, double seconds);

  /// Whether it guesses at all, beyond what grammars give.
  bool guesses() const { return config_.method != SpeculativeMethod::kNone; }
  const SpeculativeStats& stats() const { return stats_; }
  void check_invariants() const;

 private:
  std::span<const int> known_guesses(const GuessTarget& target) const;
  size_t kind(const GuessState& state, int64_t position) const;
  int64_t choose_count(const GuessTarget& target, int64_t num_sequences) const;

  const SpeculativeConfig config_;
  std::unique_ptr<DraftModel> draft_;  // nullptr: no draft model
  StepTimes times_;
  SpeculativeStats stats_;
};

}  // namespace lmdeploy
