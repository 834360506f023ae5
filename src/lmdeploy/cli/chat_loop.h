// The conversation of `lmdeploy chat`: reads messages, streams answers.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>

#include "lmdeploy/cli/console.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

class Interrupts;
class LineReader;

struct ChatLoopOptions {
  GenerationConfig gen_config;
  std::string system;              // empty: the template's own
  bool independent_turns = false;  // no history: each input is a sequence of its own
  bool apply_template = true;      // off: the input goes to the model as it is
  bool show_prompt = false;        // prints each prompt, as the model gets it, and its ids
  std::string end_mark;            // the line that ends a message; empty: the first empty line does
};

/// Lines up to the one that ends a message (an empty one where `end_mark` is), joined. Nothing at the end of
/// the input, and on Ctrl-C where nothing was typed yet; otherwise that drops what was typed.
std::optional<std::string> read_message(LineReader& reader, std::ostream& out, const std::string& end_mark);
bool is_blank(const std::string& text);

class ChatLoop {
 public:
  ChatLoop(Pipeline& pipeline, ChatLoopOptions options, LineReader& reader, Interrupts& interrupts,
           Console console);

  /// Until `exit`, the end of the input, or Ctrl-C where nothing is typed.
  void run();

 private:
  void answer(const std::string& message);
  std::unique_ptr<ResponseStream> start(const std::string& message, const RunOptions& options);
  void print_prompt(const std::string& message, const RunOptions& options);
  void print_stream(ResponseStream& stream);
  void start_over();

  Pipeline& pipeline_;
  ChatLoopOptions options_;
  LineReader& reader_;
  Interrupts& interrupts_;
  Console console_;
  ChatSession session_;
};

}  // namespace lmdeploy
