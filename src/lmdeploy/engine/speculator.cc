// From chances and costs to guesses, and back from outcomes.
#include "lmdeploy/engine/speculator.h"

#include <algorithm>
#include <array>

namespace lmdeploy {

Speculator::Speculator(const EngineConfig& config, Model* draft_model, const Kernels& kernels)
    : config_(config.speculative) {
  if (config_.method == SpeculativeMethod::kDraft)
    draft_ = std::make_unique<DraftModel>(*draft_model, kernels, config);
}

void Speculator::guess(std::span<GuessTarget> targets) {
  const auto num_sequences = static_cast<int64_t>(targets.size());
  std::vector<DraftWish> wishes;
  for (GuessTarget& target : targets) {
    GuessState& state = *target.state;
    PromptLookup::Match match;
    if (draft_ == nullptr) match = state.lookup.find(target.sequence->tokens);
    state.match_length = match.length;
    if (draft_ == nullptr && match.length == 0) continue;
    const int64_t count = choose_count(target, num_sequences);
    if (count == 0) {
      state.odds.rest();
    } else if (draft_ != nullptr) {
      wishes.push_back({&state.draft, target.sequence, target.draw, count});
    } else {
      const std::span<const int> tokens = target.sequence->tokens;
      const auto next = tokens.subspan(static_cast<size_t>(match.next));
      const auto end = next.begin() + std::min<int64_t>(count, static_cast<int64_t>(next.size()));
      target.sequence->guesses.assign(next.begin(), end);
    }
  }
  if (!wishes.empty()) draft_->guess(wishes);
}

size_t Speculator::kind(const GuessState& state, int64_t position) const {
  return draft_ != nullptr ? GuessOdds::kDraft : GuessOdds::kind_of(state.match_length + position);
}

int64_t Speculator::choose_count(const GuessTarget& target, int64_t num_sequences) const {
  int64_t most = target.most;
  if (draft_ != nullptr) most = std::min(most, draft_->most_guesses(target.sequence->length()));
  if (config_.always) return std::max<int64_t>(0, most);
  std::array<double, SpeculativeConfig::kMostTokens> odds = {};
  for (int64_t i = 0; i < most; ++i)
    odds[static_cast<size_t>(i)] = target.state->odds.of(kind(*target.state, i));
  const double token = times_.token(num_sequences);
  if (most <= 0 || token <= 0) return 0;
  return worthwhile(std::span(odds).first(static_cast<size_t>(most)), token, times_.guess(num_sequences));
}

void Speculator::learn(GuessState& state, std::span<const int> guesses, int64_t num_drawn,
                       int64_t num_accepted) {
  const auto num_guesses = static_cast<int64_t>(guesses.size());
  for (int64_t i = 0; i < std::min(num_drawn, num_guesses); ++i)
    state.odds.learn(kind(state, i), i < num_accepted);
  ++stats_.num_drafts;
  stats_.num_draft_tokens += num_guesses;
  stats_.num_accepted_tokens += num_accepted;
  for (int64_t i = 0; i < num_accepted; ++i) ++stats_.num_accepted_tokens_per_pos[static_cast<size_t>(i)];
}

void Speculator::learn_time(int64_t num_sequences, int64_t num_guesses, int64_t num_accepted,
                            double seconds) {
  times_.learn(num_sequences, num_guesses, seconds);
  stats_.decode_seconds += seconds;
  const double token = times_.token(num_sequences);
  if (num_guesses == 0 || token <= 0) return;
  stats_.saved_seconds += static_cast<double>(num_sequences + num_accepted) * token - seconds;
}

void Speculator::check_invariants() const {
  if (draft_ != nullptr) draft_->check_invariants();
}

}  // namespace lmdeploy
