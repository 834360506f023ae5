#include "lmdeploy/parsers/json_scanner.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxDepth = 256;  // as parse_json

bool is_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Whether a byte may stand outside of strings, brackets and white space: numbers, true, false, null.
bool is_scalar(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') || byte == '+' || byte == '-' ||
         byte == '.' || byte == 'E';
}

}  // namespace

JsonScanner::State JsonScanner::push(char byte) {
  if (brackets_.empty() && byte != '{') return State::kBroken;
  const bool ends_key = brackets_.size() == 1 && mark(byte);
  ++size_;
  if (in_string_) return push_in_string(byte);
  if (byte == '"') {
    in_string_ = true;
    return State::kMore;
  }
  if (byte == '{' || byte == '[') return open(byte);
  if (byte == '}' || byte == ']') return close(byte);
  const bool fine = is_space(byte) || byte == ',' || byte == ':' || is_scalar(byte);
  if (!fine) return State::kBroken;
  return ends_key ? State::kKey : State::kMore;
}

JsonScanner::State JsonScanner::push_in_string(char byte) {
  if (static_cast<unsigned char>(byte) < 0x20) return State::kBroken;
  if (escaped_)
    escaped_ = false;
  else if (byte == '\\')
    escaped_ = true;
  else if (byte == '"')
    in_string_ = false;
  return State::kMore;
}

JsonScanner::State JsonScanner::open(char bracket) {
  if (brackets_.size() == kMaxDepth) return State::kBroken;
  brackets_.push_back(bracket);
  return State::kMore;
}

JsonScanner::State JsonScanner::close(char bracket) {
  if (brackets_.back() != (bracket == '}' ? '{' : '[')) return State::kBroken;
  brackets_.pop_back();
  // The bracket of a nested value is its last byte.
  if (brackets_.size() == 1 && in_value_) member_.value_end = size_;
  return brackets_.empty() ? State::kDone : State::kMore;
}

// Called before a byte that stands directly in the outermost object is counted. Whether it ends a key.
bool JsonScanner::mark(char byte) {
  const bool ends_member = !in_string_ && (byte == ',' || byte == '}');
  if (ends_member) {
    if (part_ == Part::kValue && in_value_) members_.push_back(member_);
    part_ = Part::kKey;
    in_value_ = false;
  } else if (part_ == Part::kValue) {
    if (!in_string_ && is_space(byte)) return false;
    if (!in_value_) member_.value_begin = size_;
    in_value_ = true;
    member_.value_end = size_ + 1;
  } else if (!in_string_ && byte == '"') {
    member_.key_begin = member_.key_end = size_ + 1;
  } else if (in_string_) {
    const bool closes = byte == '"' && !escaped_;
    if (!closes) member_.key_end = size_ + 1;
  } else if (byte == ':') {
    part_ = Part::kValue;
    return true;
  }
  return false;
}

}  // namespace lmdeploy
