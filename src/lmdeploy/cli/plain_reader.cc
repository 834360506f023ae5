// Lines from a pipe or a file, and which kind of reader fits standard input.
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <ostream>
#include <utility>

#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxLineBytes = size_t{64} << 20;  // a file without newlines must not eat the memory

class PlainReader : public LineReader {
 public:
  PlainReader(int fd, std::ostream& out, Interrupts& interrupts)
      : fd_(fd), mode_(fd), out_(out), interrupts_(interrupts) {}

  InputLine read(const std::string& prompt) override {
    out_ << prompt << std::flush;
    while (true) {
      if (std::optional<std::string> line = buffered_line())
        return {InputLine::Kind::kText, repair_utf8(*line)};
      if (at_end_) return {InputLine::Kind::kEnd, ""};
      if (!wait_for_input()) return {InputLine::Kind::kInterrupted, ""};
      fill();
    }
  }

 private:
  /// A last line needs no newline.
  std::optional<std::string> buffered_line() {
    const size_t newline = buffer_.find('\n', searched_);
    searched_ = buffer_.size();
    if (newline == std::string::npos && (!at_end_ || buffer_.empty())) return std::nullopt;
    std::string line = buffer_.substr(0, newline);
    buffer_.erase(0, newline == std::string::npos ? newline : newline + 1);
    searched_ = 0;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    return line;
  }

  /// False: Ctrl-C.
  bool wait_for_input() {
    while (true) {
      pollfd fds[] = {{fd_, POLLIN, 0}, {interrupts_.fd(), POLLIN, 0}};
      const int ready = ::poll(fds, 2, -1);
      if (interrupts_.take()) return false;
      if (ready > 0 && fds[0].revents != 0) return true;
    }
  }

  void fill() {
    char bytes[4096];
    const ssize_t count = ::read(fd_, bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) return;
    if (count < 0) throw Error(ErrorCode::kIo, cat("cannot read standard input: ", std::strerror(errno)));
    at_end_ = count == 0;
    buffer_.append(bytes, static_cast<size_t>(count));
    if (buffer_.size() > kMaxLineBytes)
      throw Error(ErrorCode::kInvalidArgument,
                  cat("standard input: a line of over ", kMaxLineBytes >> 20, " MiB"));
  }

  int fd_;
  Utf8TerminalMode mode_;
  std::ostream& out_;
  Interrupts& interrupts_;
  std::string buffer_;   // read but not given out
  size_t searched_ = 0;  // leading bytes of it that hold no newline
  bool at_end_ = false;
};

}  // namespace

std::unique_ptr<LineReader> make_plain_reader(int fd, std::ostream& out, Interrupts& interrupts) {
  return std::make_unique<PlainReader>(fd, out, interrupts);
}

std::unique_ptr<LineReader> make_line_reader(std::ostream& out, Interrupts& interrupts) {
  if (::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO))
    if (std::unique_ptr<LineReader> editing = make_editing_reader(interrupts)) return editing;
  return make_plain_reader(STDIN_FILENO, out, interrupts);
}

}  // namespace lmdeploy
