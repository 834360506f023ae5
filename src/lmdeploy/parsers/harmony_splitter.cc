#include "lmdeploy/parsers/harmony_splitter.h"

#include <algorithm>
#include <utility>

#include "lmdeploy/parsers/try_json.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kStart = "<|start|>", kChannel = "<|channel|>", kMessage = "<|message|>";
constexpr std::string_view kMarkers[] = {kStart, kChannel, kMessage, "<|end|>", "<|call|>", "<|return|>"};
constexpr std::string_view kTo = " to=", kFunctions = "functions.";

struct Found {
  size_t at = 0;
  std::string_view marker = {};  // empty: none; from `at` on there may be one
};

Found find_marker(std::string_view text, size_t from, bool at_end) {
  for (size_t at = text.find('<', from); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::string_view here = text.substr(at);
    for (const std::string_view marker : kMarkers) {
      if (here.starts_with(marker)) return {at, marker};
      if (!at_end && marker.starts_with(here)) return {at};
    }
  }
  return {text.size()};
}

// The word after `key` in a header.
std::string_view word_after(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  return header.substr(0, header.find_first_of(" \t\r\n<"));
}

}  // namespace

void HarmonySplitter::Joined::append(std::string_view text, std::string& out) {
  if (text.empty()) return;
  if (std::exchange(new_message, false) && !empty) out += '\n';
  out += text;
  empty = false;
}

void HarmonySplitter::push(std::string_view text, OutputDelta& delta) {
  held_ += text;
  read(/*at_end=*/false, delta);
}

void HarmonySplitter::finish(OutputDelta& delta) {
  read(/*at_end=*/true, delta);
  end_message(delta);
}

void HarmonySplitter::read(bool at_end, OutputDelta& delta) {
  if (part_ == Part::kBeginning) begin(at_end);
  if (part_ == Part::kBeginning) return;
  size_t from = 0;
  for (;;) {
    const Found found = find_marker(held_, from, at_end);
    take_text(std::string_view(held_).substr(from, found.at - from), delta);
    from = found.at + found.marker.size();
    if (found.marker.empty()) break;
    take_marker(found.marker, delta);
  }
  held_.erase(0, from);
}

// The recipient may come first, in a header that the prompt has begun.
void HarmonySplitter::begin(bool at_end) {
  if (!at_end && held_.size() < kTo.size() && kTo.starts_with(held_)) return;
  part_ = held_.starts_with(kTo) ? Part::kHeader : Part::kContent;
}

void HarmonySplitter::take_text(std::string_view text, OutputDelta& delta) {
  if (part_ == Part::kHeader || part_ == Part::kCall) message_ += text;
  if (part_ == Part::kThought) thoughts_.append(text, delta.reasoning_content);
  if (part_ == Part::kContent) content_.append(text, delta.content);
}

void HarmonySplitter::take_marker(std::string_view marker, OutputDelta& delta) {
  const bool in_header = part_ == Part::kHeader;
  if (marker == kStart || (marker == kChannel && !in_header)) {
    end_message(delta);
    part_ = Part::kHeader;
    message_ = marker;
  } else if (marker == kChannel || (marker == kMessage && !in_header)) {
    take_text(marker, delta);
  } else if (marker == kMessage) {
    message_ += marker;
    begin_text();
  } else {
    end_message(delta);
  }
}

// The header is complete.
void HarmonySplitter::begin_text() {
  std::string_view recipient = word_after(message_, kTo);
  if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
  if (!recipient.empty()) {
    part_ = Part::kCall;
    name_ = recipient;
    text_at_ = message_.size();
  } else if (word_after(message_, kChannel) == "analysis") {
    part_ = Part::kThought;
    thoughts_.new_message = true;
  } else {
    part_ = Part::kContent;
    content_.new_message = true;
  }
}

void HarmonySplitter::end_message(OutputDelta& delta) {
  const Part ended = std::exchange(part_, Part::kContent);
  if (ended != Part::kHeader && ended != Part::kCall) return;
  const std::string message = std::exchange(message_, {});
  const std::string text = ended == Part::kCall ? message.substr(text_at_) : "";
  if (const auto arguments = try_parse_json(text); arguments && arguments->is_object())
    add_call({make_id_(), name_, text}, calls_++, delta);
  else
    content_.append(message, delta.content);
}

}  // namespace lmdeploy
