// StopMatcher.
#include <algorithm>

#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

enum class Found { kNothing, kBeginning, kWhole };

struct Comparison {
  Found found = Found::kNothing;
  size_t size = 0;  // of the stop word, when whole
};

// What stands at the front of `text`. Of several whole stop words the shortest counts: the text before it is
// the same, and generation can end sooner.
Comparison compare(std::string_view text, const std::vector<std::string>& stop_words) {
  Comparison best;
  for (const std::string& word : stop_words) {
    const size_t common = std::min(word.size(), text.size());
    if (text.substr(0, common) != std::string_view(word).substr(0, common)) continue;
    if (common < word.size()) {
      if (best.found == Found::kNothing) best.found = Found::kBeginning;
    } else if (best.found != Found::kWhole || word.size() < best.size) {
      best = {Found::kWhole, word.size()};
    }
  }
  return best;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stop_words) : stop_words_(std::move(stop_words)) {
  std::erase(stop_words_, std::string());
  for (const std::string& word : stop_words_) may_begin_[static_cast<uint8_t>(word[0])] = true;
}

std::string StopMatcher::push(std::string_view text, bool include_stop) {
  include_stop_ = include_stop;
  if (stopped_) return {};
  held_.append(text);
  return take(/*at_end=*/false);
}

std::string StopMatcher::finish() { return stopped_ ? std::string() : take(/*at_end=*/true); }

// Goes through held_ from the left. A stop word that begins further left wins even if another one is complete
// earlier, so that the result does not depend on where the pieces were cut.
std::string StopMatcher::take(bool at_end) {
  size_t at = 0;
  for (; at < held_.size(); ++at) {
    if (!may_begin_[static_cast<uint8_t>(held_[at])]) continue;
    const Comparison here = compare(std::string_view(held_).substr(at), stop_words_);
    if (here.found == Found::kWhole) {
      stopped_ = true;
      std::string out = held_.substr(0, at + (include_stop_ ? here.size : 0));
      held_.clear();
      return out;
    }
    if (here.found == Found::kBeginning && !at_end) break;
  }
  std::string out = held_.substr(0, at);
  held_.erase(0, at);
  return out;
}

}  // namespace lmdeploy
