#include "lmdeploy/parsers/call_reader.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/parsers/argument_types.h"
#include "lmdeploy/parsers/try_json.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxName = 256;  // bytes of a function's, an argument's or a call's name

bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// No marker, JSON or prose may pass as a name.
bool may_stand_in_name(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return code > ' ' && code != 0x7f && std::string_view("<>{}[]\"'`,;").find(byte) == std::string_view::npos;
}

// What no call has in its outermost object: such an object is an answer.
bool is_call_key(std::string_view key) {
  constexpr std::string_view kKeys[] = {"name", "arguments", "parameters", "id", "type"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

// Tags and line ends do not.
bool may_stand_in_key(char byte) {
  return static_cast<unsigned char>(byte) >= ' ' && byte != '<' && byte != '>';
}

// The value belongs to the lines between the tags.
std::string_view without_outer_newlines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

}  // namespace

void CallReader::start(const CallForm& form) {
  form_ = &form;
  begin_call();
  begin_step(0);
}

void CallReader::begin_call() {
  position_ = 0;
  call_ = {};
  parameters_ = nullptr;
  arguments_.clear();
  argument_idx_.clear();
}

void CallReader::begin_step(int index) {
  step_ = index;
  seen_ = 0;
  scanner_ = {};
}

CallReader::Outcome CallReader::read(std::string_view text, bool at_end) {
  if (form_->steps[static_cast<size_t>(step_)].kind == Step::Kind::kCall) {  // reported by the last read()
    begin_call();
    begin_step(step_ + 1);
  }
  while (static_cast<size_t>(step_) < form_->steps.size()) {
    const Step& step = form_->steps[static_cast<size_t>(step_)];
    if (step.kind == Step::Kind::kEnd) return Outcome::kEnd;
    if (step.kind == Step::Kind::kCall) {
      finish_call();
      return Outcome::kCall;
    }
    const Progress progress = take(step, text, at_end);
    if (progress == Progress::kMore) return Outcome::kMore;
    if (progress == Progress::kFailed) return Outcome::kNone;
    if (progress == Progress::kOther)
      begin_step(step.otherwise);
    else
      begin_step(step.next == Step::kFollowing ? step_ + 1 : step.next);
  }
  LMD_CHECK(false, "a form of tool calls without an end");
}

CallReader::Progress CallReader::take(const Step& step, std::string_view text, bool at_end) {
  switch (step.kind) {
    case Step::Kind::kLiteral:
    case Step::Kind::kPeek:
      return take_literal(step, text, at_end);
    case Step::Kind::kSpace:
      return take_space(text, at_end);
    case Step::Kind::kWord:
      return take_word(step, text, at_end);
    case Step::Kind::kUntil:
      return take_until(step, text, at_end);
    case Step::Kind::kObject:
      return take_object(step, text, at_end);
    case Step::Kind::kCall:
    case Step::Kind::kEnd:
      break;
  }
  LMD_CHECK(false, static_cast<int>(step.kind));
}

CallReader::Progress CallReader::take_literal(const Step& step, std::string_view text, bool at_end) {
  const std::string_view here = text.substr(position_, step.text.size());
  if (here == step.text) {
    if (step.kind == Step::Kind::kLiteral) position_ += step.text.size();
    return Progress::kDone;
  }
  if (!at_end && step.text.starts_with(here)) return Progress::kMore;
  return step.otherwise == Step::kNotACall ? Progress::kFailed : Progress::kOther;
}

CallReader::Progress CallReader::take_space(std::string_view text, bool at_end) {
  while (position_ < text.size() && is_space(text[position_])) ++position_;
  return position_ < text.size() || at_end ? Progress::kDone : Progress::kMore;
}

CallReader::Progress CallReader::take_word(const Step& step, std::string_view text, bool at_end) {
  const std::string_view rest = text.substr(position_);
  while (seen_ < rest.size() && seen_ <= kMaxName && may_stand_in_name(rest[seen_])) ++seen_;
  if (seen_ == rest.size() && seen_ <= kMaxName && !at_end) return Progress::kMore;
  position_ += seen_;
  if (seen_ == 0 || seen_ > kMaxName) return Progress::kFailed;
  keep(step.capture, rest.substr(0, seen_));
  return Progress::kDone;
}

CallReader::Progress CallReader::take_until(const Step& step, std::string_view text, bool at_end) {
  const bool is_key = step.capture == Capture::kKey;
  for (;; ++seen_) {
    const std::string_view rest = text.substr(position_ + seen_);
    if (rest.starts_with(step.text)) break;
    if (!at_end && step.text.starts_with(rest)) return Progress::kMore;
    if (rest.empty() || (is_key && (!may_stand_in_key(rest[0]) || seen_ == kMaxName))) {
      position_ += seen_;
      return Progress::kFailed;
    }
  }
  if (is_key && seen_ == 0) return Progress::kFailed;
  keep(step.capture, text.substr(position_, seen_));
  position_ += seen_ + step.text.size();
  return Progress::kDone;
}

CallReader::Progress CallReader::take_object(const Step& step, std::string_view text, bool at_end) {
  auto state = JsonScanner::State::kMore;
  while (state == JsonScanner::State::kMore && position_ + seen_ < text.size()) {
    state = scanner_.push(text[position_ + seen_++]);
    if (state != JsonScanner::State::kKey) continue;
    const bool is_answer =
        step.capture == Capture::kWholeCall && !is_call_key(scanner_.key(text.substr(position_)));
    state = is_answer ? JsonScanner::State::kBroken : JsonScanner::State::kMore;
  }
  if (state == JsonScanner::State::kMore && !at_end) return Progress::kMore;
  const std::string_view object = text.substr(position_, seen_);
  if (state == JsonScanner::State::kBroken) --seen_;  // the byte at fault may begin something else
  const bool kept = state == JsonScanner::State::kDone && keep_object(step.capture, object);
  position_ += seen_;
  return kept ? Progress::kDone : Progress::kFailed;
}

void CallReader::keep(Capture capture, std::string_view text) {
  if (capture == Capture::kName) {
    call_.name = text;
    parameters_ = find_parameters(tools_, text);
  }
  if (capture == Capture::kId) call_.id = text;
  if (capture == Capture::kKey) key_ = text;
  if (capture == Capture::kText) keep_argument(to_json_text(Json(text)));
  if (capture == Capture::kJson) keep_argument(json_argument(text));
  if (capture == Capture::kTyped) keep_argument(typed_argument(parameters_, key_, text));
  if (capture == Capture::kTypedLines)
    keep_argument(typed_argument(parameters_, key_, without_outer_newlines(text)));
}

// The last one of a name counts.
void CallReader::keep_argument(std::string json) {
  const auto [found, is_new] = argument_idx_.try_emplace(key_, arguments_.size());
  if (is_new)
    arguments_.emplace_back(key_, std::move(json));
  else
    arguments_[found->second].second = std::move(json);
}

bool CallReader::keep_object(Capture capture, std::string_view text) {
  const std::optional<Json> object = try_parse_json(text);
  if (!object) return false;
  if (capture != Capture::kArguments) return keep_call(text, *object, capture == Capture::kWholeCall);
  call_.arguments = text;
  return true;
}

// {"name": ..., "arguments": {...}}. The arguments stay as they are written: numbers keep all their digits.
bool CallReader::keep_call(std::string_view text, const Json& object, bool needs_arguments) {
  const Json* name = object.get_object().if_contains("name");
  if (name == nullptr || !name->is_string() || name->get_string().empty()) return false;
  call_.name = std::string(name->get_string());
  if (const Json* id = object.get_object().if_contains("id"); id != nullptr && id->is_string())
    call_.id = std::string(id->get_string());
  bool found = false;
  call_.arguments = "{}";
  for (const JsonScanner::Member& member : scanner_.members()) {
    const std::string_view key = member.key(text);
    if (key != "arguments" && key != "parameters") continue;
    found = true;
    call_.arguments = std::string(member.value(text));
  }
  if (!found) return !needs_arguments;
  std::optional<Json> arguments = try_parse_json(call_.arguments);
  if (arguments && arguments->is_string()) {  // JSON text within JSON
    call_.arguments = std::string(arguments->get_string());
    arguments = try_parse_json(call_.arguments);
  } else if (arguments && arguments->is_null()) {
    call_.arguments = "{}";
    return true;
  }
  return arguments && arguments->is_object();
}

std::optional<ToolCall> CallReader::broken_off(std::string_view text) const {
  ToolCall call = call_;
  const Step& step = form_->steps[static_cast<size_t>(step_)];
  if (step.kind == Step::Kind::kObject) {
    const std::string_view object = text.substr(position_);
    std::vector<JsonScanner::Member> members = scanner_.members();
    if (const JsonScanner::Member* open = scanner_.open_member()) {
      members.push_back(*open);
      members.back().value_end = object.size();
    }
    if (step.capture == Capture::kArguments) call.arguments = std::string(object);
    for (const JsonScanner::Member& member : members) {
      if (step.capture == Capture::kArguments) break;
      const std::string_view key = member.key(object), value = member.value(object);
      const std::optional<Json> json = try_parse_json(value);
      if (key == "name" && json && json->is_string()) call.name = std::string(json->get_string());
      if (key == "id" && json && json->is_string()) call.id = std::string(json->get_string());
      if (key == "arguments" || key == "parameters") call.arguments = std::string(value);
    }
  }
  return call.name.empty() ? std::nullopt : std::optional(std::move(call));
}

// Arguments that came one by one become an object.
void CallReader::finish_call() {
  if (!call_.arguments.empty()) return;
  std::string& text = call_.arguments = "{";
  for (const auto& [key, value] : arguments_)
    text += cat(text.size() > 1 ? ", " : "", to_json_text(Json(key)), ": ", value);
  text += '}';
}

}  // namespace lmdeploy
