// The program as a child process, fed and read by a test.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace lmdeploy::testing {

class ProgramRun {
 public:
  enum class Input { kPipe, kTerminal, kClosed };
  /// `arguments` without the program; `environment` ("LANG=C") on top of the test's own, less LMDEPLOY_* and
  /// the like.
  explicit ProgramRun(const std::vector<std::string>& arguments, Input input = Input::kPipe,
                      const std::vector<std::string>& environment = {});
  ~ProgramRun();
  ProgramRun(const ProgramRun&) = delete;
  ProgramRun& operator=(const ProgramRun&) = delete;

  void type(const std::string& bytes);
  void end_input();
  void close_output();
  void send_signal(int number);
  /// Another width of the terminal; the program gets SIGWINCH.
  void set_columns(int columns);
  /// Whether the terminal collects lines and echoes by itself; false while the program edits.
  bool terminal_edits() const;
  /// What a shell does between Ctrl-Z and `fg`: gives the terminal its own modes, then lets the program go
  /// on.
  void stop_and_continue();
  /// Reads standard output (a terminal: all that is shown) until it holds `text` after what earlier calls
  /// have seen; fails the test after two minutes.
  void expect(const std::string& text);
  /// Reads to the end and waits. The exit code, or 128 + the signal's number.
  int finish();

  const std::string& out() const { return out_; }
  /// Standard error; empty for a terminal, where it goes with the rest. Complete after finish().
  const std::string& err() const { return err_; }

 private:
  /// False at the end of the output.
  bool read_some();

  pid_t pid_ = -1;
  int input_fd_ = -1, output_fd_ = -1, error_fd_ = -1;
  std::string out_, err_;
  size_t seen_ = 0;  // bytes of out_ up to the end of the last match
};

}  // namespace lmdeploy::testing
