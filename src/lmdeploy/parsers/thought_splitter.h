// Tells a model's thoughts from its answer.
#pragma once

#include <string>
#include <string_view>

namespace lmdeploy {

/// How a model marks its thoughts, by parser name.
struct ThoughtFormat {
  std::string_view name;
  std::string_view open, close;
  /// Whether the text begins inside a thought where the caller cannot say.
  bool assumed_open;
  /// Whether it does even where the prompt does not open one.
  bool always_open;
};

/// One thought, at the beginning: [open] thought close answer. Newlines around the thought, and in front of
/// the answer, belong to the markers. After `close` everything is the answer, and so it is when the text does
/// not begin with a thought. What comes out does not depend on how the text was cut. Not thread-safe.
class ThoughtSplitter {
 public:
  /// `inside`: the prompt has opened the thought; the opening marker is then optional.
  ThoughtSplitter(const ThoughtFormat& format, bool inside) : format_(format), inside_(inside) {}

  /// Appends what is certain.
  void push(std::string_view text, std::string& thought, std::string& answer);
  /// The text ended: appends what was held back.
  void finish(std::string& thought, std::string& answer);

 private:
  enum class Part { kBeginning, kThought, kGap, kAnswer };

  bool advance(bool at_end, std::string& thought, std::string& answer);
  bool begin(bool at_end);
  bool read_thought(bool at_end, std::string& thought);
  bool read_gap(bool at_end);

  const ThoughtFormat& format_;
  bool inside_;
  Part part_ = Part::kBeginning;
  bool has_thought_ = false;  // a byte of it has been given out
  std::string held_;
};

}  // namespace lmdeploy
