// What a model's text holds besides text for the reader: thoughts and tool calls.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lmdeploy {

struct ToolCall {
  std::string id;         // unique; what the tool's answer refers to
  std::string name;       // of the function
  std::string arguments;  // JSON text of an object, as the model wrote it
};

/// A part of tool call `index` (0, 1, ... in the order of the text).
struct ToolCallDelta {
  int index = 0;
  std::string id, name;   // in the call's first delta only; both empty in later ones
  std::string arguments;  // to be appended; empty in the first delta
};

/// What a piece of text has made certain. The fields of all deltas, joined, are the ParsedOutput.
struct OutputDelta {
  std::string content;
  std::string reasoning_content;
  std::vector<ToolCallDelta> tool_calls;
  bool cut_off = false;  // the last call broke off: its arguments are not whole

  bool empty() const { return content.empty() && reasoning_content.empty() && tool_calls.empty(); }
};

struct ParsedOutput {
  std::string content;
  std::string reasoning_content;
  std::vector<ToolCall> tool_calls;
};

/// A whole call as OpenAI's stream has it: who is called first, the arguments after that. There are clients
/// that overlook arguments in a call's first delta.
inline void add_call(ToolCall call, int index, OutputDelta& delta) {
  delta.tool_calls.push_back({index, std::move(call.id), std::move(call.name), {}});
  delta.tool_calls.push_back({index, {}, {}, std::move(call.arguments)});
}

}  // namespace lmdeploy
