// Reads one run of tool calls, step by step, from text that grows at its end.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/parsers/call_grammar.h"
#include "lmdeploy/parsers/json_scanner.h"
#include "lmdeploy/parsers/output_delta.h"

namespace lmdeploy {

/// Not thread-safe. Looks at each byte a bounded number of times.
class CallReader {
 public:
  enum class Outcome {
    kMore,  // not certain yet
    kCall,  // call() has been read
    kEnd,   // the form is complete
    kNone,  // what stands after the last kCall is no call
  };

  /// `tools`: OpenAI's array, or null: types the arguments that a form gives as plain text.
  explicit CallReader(const Json& tools) : tools_(tools) {}

  void start(const CallForm& form);
  /// `text` begins where the form began or, after kCall, at the position() then. With `at_end` nothing
  /// follows it, and the outcome is not kMore.
  Outcome read(std::string_view text, bool at_end);
  /// Of the text last read: what belongs to the call (kCall, kEnd), or what is certainly plain text (kNone).
  size_t position() const { return position_; }
  /// After kMore, when `text` is all that comes: the call that it broke off in, its arguments as far as they
  /// go. Nothing: the function's name is not there yet.
  std::optional<ToolCall> broken_off(std::string_view text) const;
  /// Valid after kCall. The id is empty where the form has none.
  const ToolCall& call() const { return call_; }

 private:
  enum class Progress { kDone, kMore, kFailed, kOther };

  Progress take(const Step& step, std::string_view text, bool at_end);
  Progress take_literal(const Step& step, std::string_view text, bool at_end);
  Progress take_space(std::string_view text, bool at_end);
  Progress take_word(const Step& step, std::string_view text, bool at_end);
  Progress take_until(const Step& step, std::string_view text, bool at_end);
  Progress take_object(const Step& step, std::string_view text, bool at_end);
  void keep(Capture capture, std::string_view text);
  bool keep_object(Capture capture, std::string_view text);
  bool keep_call(std::string_view text, const Json& object, bool needs_arguments);
  void keep_argument(std::string json);
  void begin_call();
  void begin_step(int index);
  void finish_call();

  const Json& tools_;
  const CallForm* form_ = nullptr;
  int step_ = 0;
  size_t position_ = 0;  // where the step begins
  size_t seen_ = 0;      // bytes of the step that need no second look
  JsonScanner scanner_;
  ToolCall call_;
  const Json* parameters_ = nullptr;  // the schema of the function's arguments, where one is known
  std::string key_;
  std::vector<std::pair<std::string, std::string>> arguments_;  // that came one by one: name, JSON text
  std::unordered_map<std::string, size_t> argument_idx_;        // in arguments_, by name
};

}  // namespace lmdeploy
