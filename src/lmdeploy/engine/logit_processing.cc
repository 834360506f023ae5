// The rules of SamplingParams that act on logits.
#include "lmdeploy/engine/logit_processing.h"

#include <algorithm>
#include <limits>

namespace lmdeploy {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

std::span<const int> generated_tokens(const SampleInput& input) {
  return input.tokens.subspan(static_cast<size_t>(input.generated_begin));
}

void clear_counts(std::span<int32_t> counts, std::span<const int> tokens) {
  for (const int token : tokens) counts[static_cast<size_t>(token)] = 0;
}

void penalize_repetition(std::span<float> logits, std::span<const int> tokens, float penalty,
                         std::span<int32_t> counts) {
  for (const int token : tokens) {
    const auto id = static_cast<size_t>(token);
    if (counts[id]++ > 0) continue;
    logits[id] = logits[id] < 0 ? logits[id] * penalty : logits[id] / penalty;
  }
  clear_counts(counts, tokens);
}

void penalize_presence_and_frequency(std::span<float> logits, std::span<const int> generated,
                                     const SamplingParams& params, std::span<int32_t> counts) {
  for (const int token : generated) ++counts[static_cast<size_t>(token)];
  for (const int token : generated) {
    int32_t& count = counts[static_cast<size_t>(token)];
    if (count == 0) continue;  // done
    logits[static_cast<size_t>(token)] -=
        params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
    count = 0;
  }
}

// Words of the mask that allow all or nothing are the most common ones.
void keep_allowed(std::span<float> logits, std::span<const uint32_t> allowed) {
  constexpr size_t kWord = 32;
  for (size_t begin = 0; begin < logits.size(); begin += kWord) {
    const std::span<float> part = logits.subspan(begin, std::min(kWord, logits.size() - begin));
    const uint32_t bits = begin / kWord < allowed.size() ? allowed[begin / kWord] : 0;
    if (bits == ~uint32_t{0}) continue;
    for (size_t i = 0; i < part.size(); ++i)
      if ((bits >> i & 1) == 0) part[i] = kBanned;
  }
}

// An item's last id is banned when the tokens end with the ids before it.
void ban_words(std::span<float> logits, std::span<const int> tokens,
               const std::vector<std::vector<int>>& words) {
  for (const std::vector<int>& word : words) {
    const std::span<const int> head(word.data(), word.size() - 1);
    if (head.size() > tokens.size() || !std::ranges::equal(head, tokens.last(head.size()))) continue;
    logits[static_cast<size_t>(word.back())] = kBanned;
  }
}

void ban_ids(std::span<float> logits, std::span<const int> ids) {
  for (const int id : ids)  // a stop id outside the vocabulary can never be drawn
    if (id >= 0 && static_cast<size_t>(id) < logits.size()) logits[static_cast<size_t>(id)] = kBanned;
}

}  // namespace

bool needs_processing(const SampleInput& input) {
  const SamplingParams& p = *input.params;
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0 ||
         !p.logit_bias.empty() || !p.bad_words.empty() || !input.allowed.empty() || !input.banned_ids.empty();
}

void process_logits(std::span<float> logits, const SampleInput& input, std::span<int32_t> counts) {
  const SamplingParams& p = *input.params;
  if (p.repetition_penalty != 1) penalize_repetition(logits, input.tokens, p.repetition_penalty, counts);
  if (p.presence_penalty != 0 || p.frequency_penalty != 0)
    penalize_presence_and_frequency(logits, generated_tokens(input), p, counts);
  for (const auto& [id, bias] : p.logit_bias) logits[static_cast<size_t>(id)] += bias;
  if (!input.allowed.empty()) keep_allowed(logits, input.allowed);
  ban_words(logits, input.tokens, p.bad_words);
  ban_ids(logits, input.banned_ids);
}

}  // namespace lmdeploy
