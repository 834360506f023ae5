#include "lmdeploy/parsers/thought_splitter.h"

#include <algorithm>
#include <utility>

namespace lmdeploy {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";

constexpr ThoughtFormat kFormats[] = {
    {"deepseek-r1", kOpen, kClose, /*assumed_open=*/true, /*always_open=*/true},
    {"deepseek-v3", kOpen, kClose},
    {"deepseek-v32", kOpen, kClose},
    {"deepseek-v4", kOpen, kClose},
    {"default", kOpen, kClose, /*assumed_open=*/true},
    {"intern-s1", kOpen, kClose, /*assumed_open=*/true},
    {"mistral", "[THINK]", "[/THINK]"},
    {"qwen-qwq", kOpen, kClose, /*assumed_open=*/true},
    {"seed-oss", "<seed:think>", "</seed:think>"},
};

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

std::span<const ThoughtFormat> thought_formats() { return kFormats; }

const ThoughtFormat* find_thought_format(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](const ThoughtFormat& format) { return format.name == name; });
  return found == std::end(kFormats) ? nullptr : found;
}

void ThoughtSplitter::push(std::string_view text, std::string& thought, std::string& answer) {
  held_ += text;
  advance(/*at_end=*/false, thought, answer);
}

void ThoughtSplitter::finish(std::string& thought, std::string& answer) {
  advance(/*at_end=*/true, thought, answer);
}

// Each part reads on where the one before it has ended.
void ThoughtSplitter::advance(bool at_end, std::string& thought, std::string& answer) {
  if (part_ == Part::kBeginning) begin(at_end);
  if (part_ == Part::kThought) read_thought(at_end, thought);
  if (part_ == Part::kGap) read_gap();
  if (part_ == Part::kAnswer) answer += std::exchange(held_, {});
}

// White space, then perhaps the opening marker.
void ThoughtSplitter::begin(bool at_end) {
  space_ = std::min(held_.find_first_not_of(" \t\r\n", space_), held_.size());
  const std::string_view rest = std::string_view(held_).substr(space_);
  const bool opened = rest.starts_with(format_.open);
  if (!opened && !at_end && format_.open.starts_with(rest)) return;
  if (opened) held_.erase(0, space_ + format_.open.size());
  part_ = opened || inside_ ? Part::kThought : Part::kAnswer;
}

void ThoughtSplitter::read_thought(bool at_end, std::string& thought) {
  const size_t marker = find_marker(held_, format_.close, at_end);
  give_thought(std::string_view(held_).substr(0, marker), thought);
  held_.erase(0, marker);
  if (!std::string_view(held_).starts_with(format_.close)) return;
  held_.erase(0, format_.close.size());
  part_ = Part::kGap;
}

void ThoughtSplitter::read_gap() {
  held_.erase(0, std::min(held_.find_first_not_of('\n'), held_.size()));
  if (!held_.empty()) part_ = Part::kAnswer;
}

void ThoughtSplitter::give_thought(std::string_view text, std::string& thought) {
  if (!has_thought_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  const size_t end = text.find_last_not_of('\n') + 1;  // 0: newlines only
  if (end > 0) {
    thought.append(std::exchange(newlines_, 0), '\n');
    thought += text.substr(0, end);
    has_thought_ = true;
  }
  newlines_ += text.size() - end;
}

}  // namespace lmdeploy
