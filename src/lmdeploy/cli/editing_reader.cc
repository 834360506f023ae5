// Lines from a terminal, with libedit: whole characters are edited, whatever LANG says.
#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cwchar>
#include <deque>

#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

constexpr int kHistoryLines = 1000;

/// libedit writes and measures characters in the locale's encoding, so that one must be UTF-8.
bool use_utf8_locale() {
  for (const char* name : {"C.UTF-8", "C.utf8", "en_US.UTF-8"})
    if (std::setlocale(LC_CTYPE, name) != nullptr) return true;
  return false;
}

class EditingReader : public LineReader {
 public:
  explicit EditingReader(Interrupts& interrupts)
      : mode_(STDIN_FILENO),
        interrupts_(interrupts),
        edit_(::el_init("lmdeploy", stdin, stdout, stderr)),
        history_(::history_winit()) {
    HistEventW event;
    ::history_w(history_, &event, H_SETSIZE, kHistoryLines);
    ::history_w(history_, &event, H_SETUNIQUE, 1);
    ::el_set(edit_, EL_CLIENTDATA, this);
    ::el_set(edit_, EL_EDITOR, "emacs");
    ::el_set(edit_, EL_PROMPT, &prompt_of);
    ::el_set(edit_, EL_GETCFN, &read_char);
    ::el_wset(edit_, EL_HIST, &::history_w, history_);
    // Between two lines the terminal edits what is typed ahead. It would turn a Ctrl-D into NUL there; with
    // no end-of-file character it keeps it for us.
    ::el_set(edit_, EL_SETTY, "-x", "eof=", nullptr);
  }
  ~EditingReader() override {
    ::history_wend(history_);
    ::el_end(edit_);
  }

  InputLine read(const std::string& prompt) override {
    prompt_ = prompt;
    interrupted_ = false;
    interrupts_.take_continue();  // libedit looks at modes and size when it starts a line
    interrupts_.take_resize();
    int count = 0;
    // By itself libedit shows the prompt first: keys pressed in between would be edited by the terminal.
    ::el_set(edit_, EL_PREP_TERM, 1);
    const wchar_t* line = ::el_wgets(edit_, &count);
    if (interrupted_) return {InputLine::Kind::kInterrupted, typed_};
    if (line == nullptr || count <= 0) {
      show("\n");
      return {InputLine::Kind::kEnd, ""};
    }
    HistEventW event;
    if (line[0] != L'\n') ::history_w(history_, &event, H_ENTER, line);
    return {InputLine::Kind::kText, to_utf8(line, count)};
  }

 private:
  static EditingReader& self(EditLine* edit) {
    void* data = nullptr;
    ::el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditingReader*>(data);
  }
  static char* prompt_of(EditLine* edit) { return self(edit).prompt_.data(); }
  static int read_char(EditLine* edit, wchar_t* out) { return self(edit).next_char(out); }

  static std::string to_utf8(const wchar_t* line, int count) {
    std::string text;
    for (int i = 0; i < count && line[i] != L'\n'; ++i) append_utf8(text, static_cast<char32_t>(line[i]));
    return text;
  }

  /// 1: a character; 0: end of input; -1: Ctrl-C or a read error.
  int next_char(wchar_t* out) {
    while (chars_.empty()) {
      if (!wait_for_input()) return -1;
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return static_cast<int>(count);
      take_byte(byte);
    }
    *out = static_cast<wchar_t>(chars_.front());
    chars_.pop_front();
    return 1;
  }

  void take_byte(char byte) {
    std::string text;
    bytes_.push({&byte, 1}, text);
    for (size_t at = 0; at < text.size();) {
      const Utf8Char next = decode_utf8(text, at);
      chars_.push_back(next.code);
      at += next.size;
    }
  }

  bool wait_for_input() {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, 0) == 0 && has_wrapped_wide_characters())
      redraw(row_at(::el_wline(edit_)->cursor, terminal_columns(STDOUT_FILENO)));
    while (true) {
      pollfd fds[] = {{STDIN_FILENO, POLLIN, 0}, {interrupts_.fd(), POLLIN, 0}};
      const int ready = ::poll(fds, 2, -1);
      if (interrupts_.take()) {
        leave_line();
        errno = EINTR;
        return false;
      }
      if (interrupts_.take_continue()) continue_line();
      if (interrupts_.take_resize()) resize_line();
      if (ready > 0 && fds[0].revents != 0) return true;
    }
  }

  /// libedit erases some of these when the cursor goes from one row to the next.
  bool has_wrapped_wide_characters() const {
    const LineInfoW& line = *::el_wline(edit_);
    return row_at(line.lastchar, terminal_columns(STDOUT_FILENO)) > 0 &&
           std::any_of(line.buffer, line.lastchar, [](wchar_t c) { return ::wcwidth(c) == 2; });
  }

  static void show(const std::string& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  }

  void leave_line() {
    interrupted_ = true;
    chars_.clear();
    bytes_ = {};
    const LineInfoW& line = *::el_wline(edit_);
    typed_ = to_utf8(line.buffer, static_cast<int>(line.lastchar - line.buffer));
    const int columns = terminal_columns(STDOUT_FILENO);
    const int rows_below = row_at(line.lastchar, columns) - row_at(line.cursor, columns);
    show(std::string(static_cast<size_t>(rows_below) + 1, '\n'));
  }

  /// The shell has had the terminal: its modes are the shell's, and the cursor is below what the shell wrote.
  void continue_line() {
    ::el_set(edit_, EL_PREP_TERM, 0);
    ::el_set(edit_, EL_PREP_TERM, 1);
    interrupts_.take_resize();
    ::el_resize(edit_);
    redraw(0);
  }

  /// Terminals wrap what they show anew, so the cursor may be in another row of the line than before.
  void resize_line() {
    ::el_resize(edit_);
    redraw(row_at(::el_wline(edit_)->cursor, terminal_columns(STDOUT_FILENO)));
  }

  /// Writes the line anew, from `rows` above the cursor on.
  void redraw(int rows) {
    const char* clear = nullptr;
    ::el_get(edit_, EL_GETTC, "cd", &clear);
    std::string start = "\n";
    if (clear != nullptr && *clear == '\033') {
      start = rows > 0 ? cat("\r\033[", rows, "A\033[J") : "\r\033[J";
    }
    show(start);
    ::el_set(edit_, EL_REFRESH);
  }

  /// The row of the edited line, prompt included, in which a terminal of `columns` shows `at`.
  int row_at(const wchar_t* at, int columns) const {
    columns = std::max(columns, 2);
    int offset = static_cast<int>(prompt_.size());  // ASCII
    const LineInfoW& line = *::el_wline(edit_);
    for (const wchar_t* c = line.buffer; c != line.lastchar; ++c) {
      const int width = ::wcwidth(*c) < 0 ? 2 : ::wcwidth(*c);  // control characters: ^A
      if (offset % columns + width > columns) ++offset;  // a wide one does not fit into the last column
      if (c == at) break;
      offset += width;
    }
    return offset / columns;
  }

  Utf8TerminalMode mode_;  // before libedit notes the terminal's modes
  Interrupts& interrupts_;
  EditLine* edit_;
  HistoryW* history_;
  std::string prompt_;
  Utf8Assembler bytes_;         // of a character that is not whole yet
  std::deque<char32_t> chars_;  // whole, not yet asked for
  bool interrupted_ = false;
  std::string typed_;  // before the interrupt
};

}  // namespace

std::unique_ptr<LineReader> make_editing_reader(Interrupts& interrupts) {
  if (!use_utf8_locale()) return nullptr;
  return std::make_unique<EditingReader>(interrupts);
}

}  // namespace lmdeploy
