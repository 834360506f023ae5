#include "lmdeploy/core/json_events.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

/// What a line carries; empty: nothing (blank lines, comments, other fields of events).
std::string_view payload(std::string_view line) {
  const auto is_space = [](char c) { return c == ' ' || c == '\r' || c == '\t'; };
  while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
  if (line.starts_with("data:")) line.remove_prefix(5);
  while (!line.empty() && is_space(line.front())) line.remove_prefix(1);
  if (line.starts_with(":") || line.starts_with("event:") || line.starts_with("id:") ||
      line.starts_with("retry:"))
    return {};
  return line;
}

}  // namespace

void JsonEvents::push(std::string_view bytes, const std::function<void(const Json&)>& take) {
  while (!bytes.empty() && !done_) {
    const size_t end = bytes.find('\n');
    const std::string_view part = bytes.substr(0, end);
    if (line_.size() + part.size() > kMaxLine)
      throw Error(ErrorCode::kInvalidData, cat(name_, ": a line is longer than ", kMaxLine, " bytes"));
    line_ += part;
    if (end == std::string_view::npos) return;
    end_line(take);
    bytes.remove_prefix(end + 1);
  }
}

void JsonEvents::end_line(const std::function<void(const Json&)>& take) {
  const std::string line = std::exchange(line_, {});
  const std::string_view text = payload(line);
  if (text == "[DONE]")
    done_ = true;
  else if (!text.empty())
    take(parse_json(text, name_));
}

}  // namespace lmdeploy
