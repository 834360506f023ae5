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
    const std::span<const int> known = known_guesses(target);
    if (known.empty() && draft_ == nullptr) continue;
    const int64_t count = choose_count(target, num_sequences);
    if (count == 0) {
      state.odds.rest();
    } else if (known.empty()) {
      wishes.push_back({&state.draft, target.sequence, target.draw, count});
    } else {
      const std::span<const int> first = known.first(std::min(known.size(), static_cast<size_t>(count)));
      target.sequence->guesses.assign(first.begin(), first.end());
    }
  }
  if (!wishes.empty()) draft_->guess(wishes);
}

// Of the grammar, else of the tokens so far.
std::span<const int> Speculator::known_guesses(const GuessTarget& target) const {
  GuessState& state = *target.state;
  if (!state.forced.empty()) return state.forced;
  if (config_.method != SpeculativeMethod::kPromptLookup) return {};
  const std::span<const int> tokens = target.sequence->tokens;
  const PromptLookup::Match match = state.lookup.find(tokens);
  state.match_length = match.length;
  return match.length == 0 ? std::span<const int>() : tokens.subspan(static_cast<size_t>(match.next));
}

size_t Speculator::kind(const GuessState& state, int64_t position) const {
  if (!state.forced.empty()) return GuessOdds::kGrammar;
  return draft_ != nullptr ? GuessOdds::kDraft : GuessOdds::kind_of(state.match_length + position);
}

int64_t Speculator::choose_count(const GuessTarget& target, int64_t num_sequences) const {
  int64_t most = target.most;
  if (target.state->forced.empty()) most = std::min(most, config_.num_tokens);
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
