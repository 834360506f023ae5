// Estimates that follow what is measured.
#include "lmdeploy/engine/guess_policy.h"

#include <algorithm>

namespace lmdeploy {
namespace {

// A token that continues a match of 2, 3, 4 or 5, 6 to 8, 9 or more tokens; of a draft model; of what a
// grammar forces.
constexpr std::array<double, GuessOdds::kNumKinds> kUsual = {0.25, 0.35, 0.5, 0.65, 0.8, 0.7, 0.9};
constexpr double kLearned = 0.125;        // share of the latest outcome
constexpr double kForgotten = 1.0 / 256;  // share of the usual that comes back with a step without guesses
constexpr double kUsualCost = 0.15;       // of a guess, as a share of a plain step
constexpr double kFollow = 0.1;           // an estimate moves by this share, and more while it is new
constexpr double kCheaper = 0.99;         // a guess is tried again at last

}  // namespace

size_t GuessOdds::kind_of(int64_t match_length) {
  return match_length <= 2 ? 0 : match_length == 3 ? 1 : match_length <= 5 ? 2 : match_length <= 8 ? 3 : 4;
}

GuessOdds::GuessOdds() : odds_(kUsual) {}

void GuessOdds::learn(size_t kind, bool came_true) {
  odds_[kind] += kLearned * ((came_true ? 1 : 0) - odds_[kind]);
}

void GuessOdds::rest() {
  for (size_t kind = 0; kind < kNumKinds; ++kind) odds_[kind] += kForgotten * (kUsual[kind] - odds_[kind]);
}

// Where steps go up and down with equal chances it comes to rest: at the median.
void StepTimes::Median::follow(double sample, double first) {
  if (num_samples++ == 0) value = first;
  const double factor = 1 + std::max(kFollow, 1 / static_cast<double>(num_samples));
  if (sample != value) value *= sample > value ? factor : 1 / factor;
}

void StepTimes::learn(int64_t num_sequences, int64_t num_guesses, double seconds) {
  if (num_sequences > kMostSequences) return;
  Times& times = times_[static_cast<size_t>(num_sequences)];
  if (num_guesses == 0) {
    times.plain.follow(seconds, seconds);
    times.guess.value *= kCheaper;
  } else if (times.plain.value > 0) {
    const double each = (seconds - times.plain.value) / static_cast<double>(num_guesses);
    times.guess.follow(each, guess(num_sequences));
  }
}

double StepTimes::token(int64_t num_sequences) const {
  if (num_sequences > kMostSequences) return 0;
  return times_[static_cast<size_t>(num_sequences)].plain.value / static_cast<double>(num_sequences);
}

double StepTimes::guess(int64_t num_sequences) const {
  const Times& times = times_[static_cast<size_t>(num_sequences)];
  return times.guess.value > 0 ? times.guess.value : kUsualCost * times.plain.value;
}

int64_t worthwhile(std::span<const double> odds, double token_seconds, double guess_seconds) {
  if (token_seconds <= 0) return 0;
  double chance = 1, tokens = 1, seconds = token_seconds;
  int64_t count = 0;
  for (const double next : odds) {
    chance *= next;
    if (chance * seconds <= tokens * guess_seconds) break;
    tokens += chance;
    seconds += guess_seconds;
    ++count;
  }
  return count;
}

}  // namespace lmdeploy
