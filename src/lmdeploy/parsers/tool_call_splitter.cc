#include "lmdeploy/parsers/tool_call_splitter.h"

#include <optional>
#include <utility>

#include "lmdeploy/parsers/try_json.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

ToolCallSplitter::ToolCallSplitter(const ToolFormat& format, Json tools, std::function<std::string()> make_id)
    : format_(format), tools_(std::move(tools)), make_id_(std::move(make_id)), reader_(tools_) {}

void ToolCallSplitter::push(std::string_view text, OutputDelta& delta) {
  held_ += text;
  advance(/*at_end=*/false, delta);
}

void ToolCallSplitter::finish(OutputDelta& delta) {
  advance(/*at_end=*/true, delta);
  if (calls_ == 0 || !blank_) delta.content += space_;
  space_.clear();
}

void ToolCallSplitter::break_off(OutputDelta& delta) {
  if (in_call_)
    if (std::optional<ToolCall> call = reader_.broken_off(rest())) {
      delta.cut_off = !try_parse_json(call->arguments);
      give_call(std::move(*call), delta);
    }
  in_call_ = false;
  held_.clear();
  begin_ = 0;
}

void ToolCallSplitter::advance(bool at_end, OutputDelta& delta) {
  while (in_call_ ? read_call(at_end, delta) : read_text(at_end, delta)) {
  }
  held_.erase(0, std::exchange(begin_, 0));
}

// These two tell whether there may be more to do with the text at hand.
bool ToolCallSplitter::read_text(bool at_end, OutputDelta& delta) {
  size_t at = 0;
  const CallForm* form = find_form(at_end, at);
  give_text(rest().substr(0, at), delta);
  begin_ += at;
  if (form == nullptr) return false;
  reader_.start(*form);
  in_call_ = true;
  return true;
}

bool ToolCallSplitter::read_call(bool at_end, OutputDelta& delta) {
  const CallReader::Outcome outcome = reader_.read(rest(), at_end);
  if (outcome == CallReader::Outcome::kMore) return false;
  const size_t used = reader_.position();
  if (outcome == CallReader::Outcome::kCall) give_call(reader_.call(), delta);
  if (outcome == CallReader::Outcome::kNone) give_text(rest().substr(0, used), delta);
  begin_ += used;
  in_call_ = outcome == CallReader::Outcome::kCall;
  return true;
}

// The form that begins first, and where. nullptr: none; text from `at` on may begin one.
const CallForm* ToolCallSplitter::find_form(bool at_end, size_t& at) const {
  const std::string_view text = rest();
  bool opens = opens_;
  for (at = 0; at < text.size(); ++at) {
    const std::string_view here = text.substr(at);
    bool begins = false;
    for (const CallForm& form : format_.forms) {
      if (form.opens_output && !opens) continue;
      if (here.starts_with(form.start)) return &form;
      begins = begins || form.start.starts_with(here);
    }
    if (begins && !at_end) return nullptr;
    opens = opens && kSpace.find(text[at]) != std::string_view::npos;
  }
  return nullptr;
}

void ToolCallSplitter::give_text(std::string_view text, OutputDelta& delta) {
  if (blank_) {
    const size_t begin = std::min(text.find_first_not_of(kSpace), text.size());
    space_ += text.substr(0, begin);
    text.remove_prefix(begin);
  }
  if (text.empty()) return;
  blank_ = opens_ = false;
  const size_t end = text.find_last_not_of('\n') + 1;  // 0: newlines only
  if (end > 0) {
    delta.content += std::exchange(space_, {});
    delta.content += text.substr(0, end);
  }
  space_ += text.substr(end);
}

void ToolCallSplitter::give_call(ToolCall call, OutputDelta& delta) {
  if (call.id.empty()) call.id = make_id_();
  add_call(std::move(call), calls_++, delta);
  space_.clear();
  blank_ = true;
}

}  // namespace lmdeploy
