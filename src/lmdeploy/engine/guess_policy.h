// How many tokens to guess: what is known of their chances, and of what they cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lmdeploy {

/// How likely guesses of one request come true, by kind of guess. Starts from what is usual, follows the
/// latest outcomes, and comes back to the usual while a kind is not tried, so that it is tried again.
class GuessOdds {
 public:
  static constexpr size_t kNumKinds = 7;
  /// Of a token that goes on from a match of `match_length` tokens.
  static size_t kind_of(int64_t match_length);
  /// Of a token of a draft model.
  static constexpr size_t kDraft = 5;
  /// Of a token that spells what a grammar forces.
  static constexpr size_t kGrammar = 6;

  GuessOdds();
  double of(size_t kind) const { return odds_[kind]; }
  void learn(size_t kind, bool came_true);
  /// A step without guesses.
  void rest();

 private:
  std::array<double, kNumKinds> odds_;
};

/// What steps take, by the number of sequences that decode. Medians, so that a busy moment of the machine
/// does not count; followed from step to step, since sequences get longer. Seconds.
class StepTimes {
 public:
  /// More sequences than this are not guessed for: their step is bound by arithmetic.
  static constexpr int64_t kMostSequences = 32;

  /// A step in which `num_sequences` got a token each and `num_guesses` were checked.
  void learn(int64_t num_sequences, int64_t num_guesses, double seconds);
  /// What a token costs without guesses; 0: not known yet.
  double token(int64_t num_sequences) const;
  /// What one more guess costs.
  double guess(int64_t num_sequences) const;

 private:
  struct Median {
    double value = 0;  // 0: not known
    int64_t num_samples = 0;
    void follow(double sample, double first);
  };
  struct Times {
    Median plain, guess;
  };
  std::array<Times, kMostSequences + 1> times_;
};

/// How many of the tokens whose chances (given that the ones before come true) are `odds` are worth their
/// time: those that bring tokens faster than steps without them do.
int64_t worthwhile(std::span<const double> odds, double token_seconds, double guess_seconds);

}  // namespace lmdeploy
