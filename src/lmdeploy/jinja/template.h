// Our Jinja engine: jinja2's language as chat templates get it from transformers (trim_blocks, lstrip_blocks,
// loop controls, `generation`, an immutable sandbox), with bounded time, memory and stack.
#pragma once

#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy::jinja {

/// What strftime_now shows.
struct LocalTime {
  LocalTime() = default;
  LocalTime(const std::tm& date_) : date(date_) {}  // NOLINT: implicit by intent
  std::tm date{};
  int microsecond = 0;
  std::string offset;  // "+0200" for %z; empty, as for Python's naive datetime: prints as nothing
  std::string zone;    // "CEST" for %Z; the same
};
using Clock = std::function<LocalTime()>;
LocalTime system_clock();

/// A parsed template. Immutable; thread-safe.
class Template {
 public:
  /// Throws Error(kInvalidData) with the line of a syntax error.
  explicit Template(const std::string& source);
  ~Template();
  Template(Template&&) noexcept;

  /// Throws Error(kInvalidArgument): the words of raise_exception, or what went wrong, with the line.
  std::string render(const JsonObject& variables, const Clock& clock = system_clock) const;
  /// The same, for probing: false instead of an Error, with `out` its message.
  bool try_render(const JsonObject& variables, std::string& out, const Clock& clock = system_clock) const;
  /// Whether the source spells `text` as a string literal.
  bool has_literal(std::string_view text) const;
  /// Whether the word `name` stands in one of its tags: false means that no variable of this name matters.
  bool has_name(std::string_view name) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace lmdeploy::jinja
