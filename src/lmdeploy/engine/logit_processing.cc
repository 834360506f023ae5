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

// ban(id) for the ids that may not be drawn: an item of bad words bans its last one when the tokens end with
// those before it.
template <typename Ban>
void for_banned(const SampleInput& input, size_t vocab_size, const Ban& ban) {
  for (const std::vector<int>& word : input.params->bad_words) {
    const std::span<const int> head(word.data(), word.size() - 1);
    if (head.size() > input.tokens.size() || !std::ranges::equal(head, input.tokens.last(head.size())))
      continue;
    ban(static_cast<size_t>(word.back()));
  }
  for (const int id : input.banned_ids)  // a stop id outside the vocabulary can never be drawn
    if (id >= 0 && static_cast<size_t>(id) < vocab_size) ban(static_cast<size_t>(id));
}

/// The edits of one row, found by their ids.
class RowEdits {
 public:
  RowEdits(std::span<int32_t> places, std::vector<LogitEdit>& edits)
      : places_(places), edits_(edits), first_(edits.size()) {}
  ~RowEdits() {
    for (const LogitEdit& edit : all()) places_[static_cast<size_t>(edit.id)] = 0;
  }
  RowEdits(const RowEdits&) = delete;
  RowEdits& operator=(const RowEdits&) = delete;

  LogitEdit& of(size_t id) {
    int32_t& place = places_[id];
    if (place == 0) {
      edits_.push_back({.id = static_cast<int32_t>(id)});
      place = static_cast<int32_t>(edits_.size() - first_);
    }
    return edits_[first_ + static_cast<size_t>(place) - 1];
  }
  std::span<LogitEdit> all() { return std::span(edits_).subspan(first_); }
  void drop() {
    for (const LogitEdit& edit : all()) places_[static_cast<size_t>(edit.id)] = 0;
    edits_.resize(first_);
  }

 private:
  const std::span<int32_t> places_;
  std::vector<LogitEdit>& edits_;
  const size_t first_;
};

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
  for_banned(input, logits.size(), [&](size_t id) { logits[id] = kBanned; });
}

bool append_edits(const SampleInput& input, std::span<int32_t> places, std::vector<LogitEdit>& edits) {
  const SamplingParams& p = *input.params;
  if (!input.allowed.empty()) return false;  // nearly every id would be one
  RowEdits row(places, edits);
  if (p.repetition_penalty != 1)
    for (const int token : input.tokens) row.of(static_cast<size_t>(token)).repetition = p.repetition_penalty;
  if (p.presence_penalty != 0 || p.frequency_penalty != 0) {
    for (const int token : generated_tokens(input)) ++row.of(static_cast<size_t>(token)).penalty;  // counts
    for (LogitEdit& edit : row.all())
      if (edit.penalty > 0) edit.penalty = p.presence_penalty + p.frequency_penalty * edit.penalty;
  }
  for (const auto& [id, bias] : p.logit_bias) {
    LogitEdit& edit = row.of(static_cast<size_t>(id));
    if (edit.bias != 0) {
      row.drop();
      return false;
    }
    edit.bias = bias;
  }
  for_banned(input, places.size(), [&](size_t id) { row.of(id).bias = kBanned; });
  return true;
}

}  // namespace lmdeploy
