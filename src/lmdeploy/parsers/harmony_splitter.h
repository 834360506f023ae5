// gpt-oss: a series of messages, each with a channel, which hold thoughts, calls or text for the reader.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "lmdeploy/parsers/output_delta.h"

namespace lmdeploy {

/// [<|start|>ROLE][ to=RECIPIENT]<|channel|>CHANNEL[ to=RECIPIENT][ <|constrain|>TYPE]<|message|>TEXT, ended
/// by
/// <|end|>, <|call|>, <|return|> or the end of the text; the first <|start|>ROLE stands in the prompt.
/// - With a recipient, and a JSON object for text: a call (of f, for functions.f).
/// - Without, on channel analysis: a thought; on any other: content. Those of one kind are joined by
/// newlines.
/// - A message to somebody whose text is no JSON object, and what is no message, is content as it is written.
/// What comes out does not depend on how the text was cut. Not thread-safe.
class HarmonySplitter {
 public:
  /// `make_id` gives a new id for each call.
  explicit HarmonySplitter(std::function<std::string()> make_id) : make_id_(std::move(make_id)) {}

  void push(std::string_view text, OutputDelta& delta);
  /// The text ended: gives out what was held back.
  void finish(OutputDelta& delta);

 private:
  enum class Part { kBeginning, kContent, kHeader, kThought, kCall };

  /// Text whose parts, messages, are joined by newlines.
  struct Joined {
    bool empty = true, new_message = false;
    void append(std::string_view text, std::string& out);
  };

  void read(bool at_end, OutputDelta& delta);
  void begin(bool at_end);
  void take_text(std::string_view text, OutputDelta& delta);
  void take_marker(std::string_view marker, OutputDelta& delta);
  void begin_text();
  void end_message(OutputDelta& delta);

  std::function<std::string()> make_id_;
  Part part_ = Part::kBeginning;
  std::string held_;     // not certain yet
  std::string message_;  // kHeader, kCall: as it is written so far
  size_t text_at_ = 0;   // kCall: where in message_ the text begins
  std::string name_;     // kCall: of the function
  Joined thoughts_, content_;
  int calls_ = 0;
};

}  // namespace lmdeploy
