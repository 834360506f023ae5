#include "lmdeploy/cli/chat_loop.h"

#include <ostream>
#include <utility>

#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

// How long Ctrl-C may go unnoticed while an answer is on its way.
constexpr std::chrono::milliseconds kInterruptPoll{50};

}  // namespace

bool is_blank(const std::string& text) { return text.find_first_not_of(" \t\n") == std::string::npos; }

ChatLoop::ChatLoop(Pipeline& pipeline, ChatLoopOptions options, LineReader& reader, Interrupts& interrupts,
                   Console console)
    : pipeline_(pipeline),
      options_(std::move(options)),
      reader_(reader),
      interrupts_(interrupts),
      console_(console) {
  start_over();
}

void ChatLoop::run() {
  while (const std::optional<std::string> message = read_message(reader_, console_.out, options_.end_mark)) {
    if (*message == "exit") break;
    if (*message == "end") {
      start_over();
    } else if (!is_blank(*message)) {
      answer(*message);
    }
  }
  console_.out << "exiting...\n";
  check_written(console_.out);
}

std::optional<std::string> read_message(LineReader& reader, std::ostream& out, const std::string& end_mark) {
  out << '\n';
  check_written(out);
  std::string message;
  std::string prompt =
      end_mark.empty() ? "double enter to end input >>> " : cat("enter ", end_mark, " to end the input >>> ");
  for (bool first = true;; first = false) {
    const InputLine line = reader.read(prompt);
    if (line.kind == InputLine::Kind::kInterrupted && first && line.text.empty()) return std::nullopt;
    if (line.kind == InputLine::Kind::kInterrupted) return "";
    if (line.kind == InputLine::Kind::kEnd && is_blank(message)) return std::nullopt;
    if (line.kind == InputLine::Kind::kEnd || line.text == end_mark) return message;
    message += (first ? "" : "\n") + line.text;
    prompt.clear();
  }
}

/// A message that cannot be answered ends neither the program nor the conversation.
void ChatLoop::answer(const std::string& message) {
  try {
    RunOptions options;
    options.do_preprocess = options_.apply_template;
    if (options_.show_prompt) print_prompt(message, options);
    print_stream(*start(message, options));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kIo || error.code() == ErrorCode::kClosed) throw;
    console_.err << "error: " << error.what() << std::endl;
  }
}

std::unique_ptr<ResponseStream> ChatLoop::start(const std::string& message, const RunOptions& options) {
  if (options_.independent_turns) return pipeline_.submit(message, options_.gen_config, options);
  return pipeline_.chat(session_, message, options_.gen_config, options);
}

void ChatLoop::print_prompt(const std::string& message, const RunOptions& options) {
  const PromptPreview prompt = options_.independent_turns ? pipeline_.preview(message, options)
                                                          : pipeline_.preview(session_, message, options);
  console_.out << prompt.text << "\n[";
  for (size_t i = 0; i < prompt.token_ids.size(); ++i)
    console_.out << (i > 0 ? ", " : "") << prompt.token_ids[i];
  console_.out << "]\n";
  check_written(console_.out);
}

void ChatLoop::print_stream(ResponseStream& stream) {
  interrupts_.take();  // from before the answer began
  bool interrupted = false;
  while (!stream.finished()) {
    const std::optional<Response> piece = stream.next(kInterruptPoll);
    if (interrupts_.take()) {
      stream.cancel();
      interrupted = true;
    }
    if (!piece || interrupted) continue;
    console_.out << piece->text;
    check_written(console_.out);
    if (!piece->error_code) continue;
    const bool full = piece->finish_reason == FinishReason::kLength;
    console_.out << (full ? "WARNING: exceed session max length. Please end the session with `end`. ("
                          : "error: (")
                 << piece->error_message << ")";
  }
  console_.out << '\n';
  check_written(console_.out);
}

void ChatLoop::start_over() {
  if (session_.session_id != 0) pipeline_.end_session(session_);
  session_ = pipeline_.new_session();
  session_.system = options_.system;
}

}  // namespace lmdeploy
