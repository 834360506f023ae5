// Hash chains over pairs of tokens, as compressors have them.
#include "lmdeploy/engine/prompt_lookup.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/core/random.h"

namespace lmdeploy {
namespace {

constexpr size_t kFirstSlots = 1024;
constexpr int kMostPlaces = 64;

// How many tokens before `place` equal the last ones.
int64_t match_length(std::span<const int> tokens, int64_t place) {
  const auto end = static_cast<int64_t>(tokens.size());
  const int64_t most = std::min(place, PromptLookup::kLongest);
  int64_t length = 0;
  while (length < most &&
         tokens[static_cast<size_t>(place - 1 - length)] == tokens[static_cast<size_t>(end - 1 - length)])
    ++length;
  return length;
}

}  // namespace

PromptLookup::Match PromptLookup::find(std::span<const int> tokens) {
  add_up_to(tokens);
  Match best;
  if (tokens.size() < 3) return best;
  int32_t place = latest_[slot(tokens[tokens.size() - 2], tokens.back())];
  for (int looked = 0; place > 0 && looked < kMostPlaces && best.length < kLongest; ++looked) {
    const int64_t length = match_length(tokens, place);
    if (length >= kShortest && length > best.length) best = {length, place};
    place = previous_[static_cast<size_t>(place)];
  }
  return best;
}

// The place after the last token joins later: nothing follows it yet.
void PromptLookup::add_up_to(std::span<const int> tokens) {
  if (latest_.size() < tokens.size() || latest_.empty()) grow(tokens.size());
  for (size_t place = previous_.size(); place < tokens.size(); ++place) {
    int32_t& latest = latest_[slot(tokens[place - 2], tokens[place - 1])];
    previous_.push_back(std::exchange(latest, static_cast<int32_t>(place)));
  }
}

void PromptLookup::grow(size_t num_tokens) {
  size_t slots = kFirstSlots;
  while (slots < 2 * num_tokens) slots *= 2;
  latest_.assign(slots, 0);
  previous_.assign(2, 0);  // no pair ends there
}

size_t PromptLookup::slot(int before, int last) const {
  const auto pair = static_cast<uint64_t>(static_cast<uint32_t>(before)) << 32 | static_cast<uint32_t>(last);
  return mix_bits(pair) & (latest_.size() - 1);
}

}  // namespace lmdeploy
