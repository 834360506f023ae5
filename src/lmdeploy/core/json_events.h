// The JSON values of a stream, however its bytes are cut.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

/// Reads server-sent events ("data: {...}" up to "data: [DONE]"), and as well one value in each line.
class JsonEvents {
 public:
  static constexpr size_t kMaxLine = 16 << 20;

  /// `name` begins messages.
  explicit JsonEvents(std::string name) : name_(std::move(name)) {}

  /// Calls `take` for each value that is complete; after [DONE] nothing. Throws Error(kInvalidData) for a
  /// line that is no JSON, or is longer than kMaxLine.
  void push(std::string_view bytes, const std::function<void(const Json&)>& take);
  /// [DONE] came.
  bool done() const { return done_; }

 private:
  void end_line(const std::function<void(const Json&)>& take);

  std::string name_, line_;
  bool done_ = false;
};

}  // namespace lmdeploy
