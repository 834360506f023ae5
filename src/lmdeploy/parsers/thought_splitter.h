// Tells a model's thoughts from its answer.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace lmdeploy {

/// How a model marks its thoughts, by parser name.
struct ThoughtFormat {
  std::string_view name;
  std::string_view open, close;
  /// Whether the text begins inside a thought where the caller cannot say.
  bool assumed_open = false;
  /// Whether it does even where the prompt does not open one.
  bool always_open = false;
};

/// nullptr for an unknown name.
const ThoughtFormat* find_thought_format(std::string_view name);
std::span<const ThoughtFormat> thought_formats();

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

  void advance(bool at_end, std::string& thought, std::string& answer);
  void begin(bool at_end);
  void read_thought(bool at_end, std::string& thought);
  void read_gap();
  void give_thought(std::string_view text, std::string& thought);

  const ThoughtFormat& format_;
  bool inside_;
  Part part_ = Part::kBeginning;
  std::string held_;          // not certain yet
  size_t space_ = 0;          // white space that held_ begins with, before anything else has come
  size_t newlines_ = 0;       // of the thought: they wait for what follows them
  bool has_thought_ = false;  // a byte of it has been given out
};

}  // namespace lmdeploy
