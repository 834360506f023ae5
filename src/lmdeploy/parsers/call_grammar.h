// The forms in which models write tool calls, as data: steps that are taken one after another.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace lmdeploy {

/// Where what a step has read belongs.
enum class Capture : uint8_t {
  kNothing,
  kName,        // of the function
  kId,          // of the call
  kArguments,   // a JSON object
  kKey,         // of one argument
  kText,        // the argument last named: text
  kJson,        // the same: any other JSON value
  kTyped,       // the same: what the function's schema says
  kTypedLines,  // the same, on lines of its own: newlines beside the markers are not part of it
  kCallObject,  // {"name": ..., "arguments" or "parameters": {...}}; without arguments: none
  kWholeCall,   // the same, but arguments must be there, and nothing that no call has
};

struct Step {
  enum class Kind : uint8_t {
    kLiteral,  // `text` stands here
    kPeek,     // the same, but it is left for the next step
    kSpace,    // white space, or nothing
    kWord,     // a name: bytes up to one that no name has
    kUntil,    // everything before `text`, and `text`
    kObject,   // a JSON object
    kCall,     // a call is complete: it counts, whatever follows
    kEnd,      // nothing more belongs to the call
  };
  static constexpr int8_t kFollowing = -1;
  static constexpr int8_t kNotACall = -1;

  Kind kind;
  std::string_view text = {};
  Capture capture = Capture::kNothing;
  int8_t next = kFollowing;      // index of the step after this one
  int8_t otherwise = kNotACall;  // kLiteral, kPeek: index of the step when something else stands here
};

/// One way to write calls. `start` is where `steps` begin to read.
struct CallForm {
  std::string_view start;
  std::span<const Step> steps;
  bool opens_output = false;  // only where nothing but white space and calls has come before
};

enum class CallIds : uint8_t { kOpenAi, kNineLetters };

/// A parser by name.
struct ToolFormat {
  std::string_view name;
  std::span<const CallForm> forms;
  CallIds ids = CallIds::kOpenAi;
};

/// nullptr for an unknown name.
const ToolFormat* find_tool_format(std::string_view name);
std::span<const ToolFormat> tool_formats();

}  // namespace lmdeploy
