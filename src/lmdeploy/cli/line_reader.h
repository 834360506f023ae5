// Lines from the user: plain from a pipe or file, with editing and history on a terminal.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>

namespace lmdeploy {

class Interrupts;

struct InputLine {
  enum class Kind { kText, kEnd, kInterrupted };
  Kind kind = Kind::kEnd;
  /// Valid UTF-8 (bytes that are none become U+FFFD), without the newline. kInterrupted: what was typed so
  /// far.
  std::string text;
};

class LineReader {
 public:
  virtual ~LineReader() = default;
  /// Shows `prompt` and waits for a line, the end of the input, or Ctrl-C.
  virtual InputLine read(const std::string& prompt) = 0;
};

/// Reads `fd`; prompts go to `out`.
std::unique_ptr<LineReader> make_plain_reader(int fd, std::ostream& out, Interrupts& interrupts);
/// Standard input with libedit. nullptr when the system has no UTF-8 locale to edit in.
std::unique_ptr<LineReader> make_editing_reader(Interrupts& interrupts);
/// The editing one when standard input and output are a terminal.
std::unique_ptr<LineReader> make_line_reader(std::ostream& out, Interrupts& interrupts);

}  // namespace lmdeploy
