// Tells tool calls from text for the reader.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lmdeploy/core/json.h"
#include "lmdeploy/parsers/call_reader.h"
#include "lmdeploy/parsers/output_delta.h"

namespace lmdeploy {

/// What comes out does not depend on how the text was cut. Not thread-safe.
class ToolCallSplitter {
 public:
  /// `make_id` gives a new id for each call that brings none.
  ToolCallSplitter(const ToolFormat& format, Json tools, std::function<std::string()> make_id);
  ToolCallSplitter(const ToolCallSplitter&) = delete;
  ToolCallSplitter& operator=(const ToolCallSplitter&) = delete;

  void push(std::string_view text, OutputDelta& delta);
  /// The text ended: gives out what was held back.
  void finish(OutputDelta& delta);
  /// The text of calls ended: gives out the one that is not complete, as far as it goes.
  void break_off(OutputDelta& delta);

 private:
  void advance(bool at_end, OutputDelta& delta);
  bool read_text(bool at_end, OutputDelta& delta);
  bool read_call(bool at_end, OutputDelta& delta);
  const CallForm* find_form(bool at_end, size_t& at) const;
  void give_text(std::string_view text, OutputDelta& delta);
  void give_call(ToolCall call, OutputDelta& delta);

  const ToolFormat& format_;
  Json tools_;
  std::function<std::string()> make_id_;
  CallReader reader_;
  bool in_call_ = false;
  std::string_view rest() const { return std::string_view(held_).substr(begin_); }

  std::string held_;  // from begin_ on: not certain yet
  size_t begin_ = 0;
  std::string space_;  // white space that is dropped if a call follows it, or nothing but calls came before
  bool blank_ = true;  // nothing but white space since the beginning or the last call
  bool opens_ = true;  // nothing but white space and calls so far
  int calls_ = 0;
};

}  // namespace lmdeploy
