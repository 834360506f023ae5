#include "lmdeploy/parsers/thought_splitter.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

// Where `marker` begins, whole or (unless nothing follows) cut off by the end of the text.
size_t find_marker(std::string_view text, std::string_view marker, bool at_end) {
  const size_t whole = text.find(marker);
  if (whole != std::string_view::npos || at_end) return std::min(whole, text.size());
  const size_t longest = std::min(marker.size() - 1, text.size());
  for (size_t size = longest; size > 0; --size)
    if (text.ends_with(marker.substr(0, size))) return text.size() - size;
  return text.size();
}

}  // namespace

void ThoughtSplitter::push(std::string_view text, std::string& thought, std::string& answer) {
  held_ += text;
  while (advance(/*at_end=*/false, thought, answer)) {
  }
}

void ThoughtSplitter::finish(std::string& thought, std::string& answer) {
  while (advance(/*at_end=*/true, thought, answer)) {
  }
}

// Whether a new part has begun.
bool ThoughtSplitter::advance(bool at_end, std::string& thought, std::string& answer) {
  switch (part_) {
    case Part::kBeginning:
      return begin(at_end);
    case Part::kThought:
      return read_thought(at_end, thought);
    case Part::kGap:
      return read_gap(at_end);
    case Part::kAnswer:
      answer += std::exchange(held_, {});
      return false;
  }
  return false;
}

// White space, then perhaps the opening marker.
bool ThoughtSplitter::begin(bool at_end) {
  const size_t space = std::min(held_.find_first_not_of(" \t\r\n"), held_.size());
  const std::string_view rest = std::string_view(held_).substr(space);
  const bool opened = rest.starts_with(format_.open);
  if (!opened && !at_end && format_.open.starts_with(rest)) return false;
  if (opened) held_.erase(0, space + format_.open.size());
  part_ = opened || inside_ ? Part::kThought : Part::kAnswer;
  return true;
}

bool ThoughtSplitter::read_thought(bool at_end, std::string& thought) {
  const size_t marker = find_marker(held_, format_.close, at_end);
  std::string_view text = std::string_view(held_).substr(0, marker);
  if (!has_thought_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  const size_t end = text.find_last_not_of('\n') + 1;  // 0: newlines only
  has_thought_ = has_thought_ || end > 0;
  thought += text.substr(0, end);
  const bool closed = std::string_view(held_).substr(marker).starts_with(format_.close);
  // Newlines wait for what follows them.
  const size_t used = closed ? marker + format_.close.size() : marker - (text.size() - end);
  held_.erase(0, used);
  if (closed) part_ = Part::kGap;
  if (at_end && !closed) held_.clear();
  return closed;
}

bool ThoughtSplitter::read_gap(bool at_end) {
  held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
  if (held_.empty() && !at_end) return false;
  part_ = Part::kAnswer;
  return true;
}

}  // namespace lmdeploy
