#include "program_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "lmdeploy/core/error.h"

namespace lmdeploy::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{120};

[[noreturn]] void run_child(const std::vector<std::string>& arguments,
                            const std::vector<std::string>& environment) {
  for (const char* name :
       {"TM_LOG_LEVEL", "LMDEPLOY_LOG_FILE", "LMDEPLOY_LOG_PID", "NO_COLOR", "FORCE_COLOR", "HF_TOKEN",
        "HUGGING_FACE_HUB_TOKEN", "LMDEPLOY_USE_MODELSCOPE", "LMDEPLOY_USE_OPENMIND_HUB"})
    ::unsetenv(name);
  ::setenv("TERM", "xterm", 1);
  for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> argv = {const_cast<char*>(LMDEPLOY_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::execv(LMDEPLOY_PROGRAM, argv.data());
  ::_exit(127);
}

void check(bool ok, const char* what) {
  if (!ok) throw Error(ErrorCode::kIo, cat("cannot ", what));
}

}  // namespace

ProgramRun::ProgramRun(const std::vector<std::string>& arguments, Input input,
                       const std::vector<std::string>& environment) {
  if (input == Input::kTerminal) {
    const winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = ::forkpty(&output_fd_, nullptr, nullptr, &size);
    check(pid_ >= 0, "open a pseudo terminal");
    if (pid_ == 0) run_child(arguments, environment);
    input_fd_ = output_fd_;
    return;
  }
  int in[2], out[2], err[2];
  check(::pipe2(in, O_CLOEXEC) == 0 && ::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(err, O_CLOEXEC) == 0,
        "make pipes");
  pid_ = ::fork();
  check(pid_ >= 0, "fork");
  if (pid_ == 0) {
    if (input == Input::kClosed) {
      ::close(STDIN_FILENO);
    } else {
      ::dup2(in[0], STDIN_FILENO);
    }
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    run_child(arguments, environment);
  }
  for (const int fd : {in[0], out[1], err[1]}) ::close(fd);
  input_fd_ = in[1];
  output_fd_ = out[0];
  error_fd_ = err[0];
}

ProgramRun::~ProgramRun() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  close_output();
  end_input();
}

void ProgramRun::type(const std::string& bytes) {
  check(::write(input_fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
        "write to the program");
}

void ProgramRun::end_input() {
  if (input_fd_ >= 0 && input_fd_ != output_fd_) ::close(input_fd_);
  input_fd_ = -1;
}

void ProgramRun::close_output() {
  if (output_fd_ >= 0) ::close(output_fd_);
  if (input_fd_ == output_fd_) input_fd_ = -1;
  output_fd_ = -1;
}

void ProgramRun::send_signal(int number) { ::kill(pid_, number); }

void ProgramRun::set_columns(int columns) {
  const winsize size = {
      .ws_row = 24, .ws_col = static_cast<unsigned short>(columns), .ws_xpixel = 0, .ws_ypixel = 0};
  check(::ioctl(output_fd_, TIOCSWINSZ, &size) == 0, "resize the terminal");
}

bool ProgramRun::terminal_edits() const {
  termios mode{};
  check(::tcgetattr(output_fd_, &mode) == 0, "read the terminal's modes");
  return (mode.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO);
}

void ProgramRun::stop_and_continue() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  check(::waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status), "stop the program");
  termios mode{};
  check(::tcgetattr(output_fd_, &mode) == 0, "read the terminal's modes");
  mode.c_lflag |= ICANON | ECHO;
  check(::tcsetattr(output_fd_, TCSANOW, &mode) == 0, "set the terminal's modes");
  ::kill(pid_, SIGCONT);
}

bool ProgramRun::read_some() {
  pollfd fds[] = {{output_fd_, POLLIN, 0}, {error_fd_, POLLIN, 0}};
  ::poll(fds, 2, 100);
  char bytes[4096];
  if (fds[1].revents != 0) {
    const ssize_t count = ::read(error_fd_, bytes, sizeof(bytes));
    if (count > 0) err_.append(bytes, static_cast<size_t>(count));
    if (count <= 0) error_fd_ = (::close(error_fd_), -1);
  }
  if (fds[0].revents != 0) {
    const ssize_t count = ::read(output_fd_, bytes, sizeof(bytes));
    if (count <= 0) return false;
    out_.append(bytes, static_cast<size_t>(count));
  }
  return true;
}

void ProgramRun::expect(const std::string& text) {
  const auto deadline = Clock::now() + kPatience;
  bool open = true;
  while (true) {
    const size_t at = out_.find(text, seen_);
    if (at != std::string::npos) {
      seen_ = at + text.size();
      return;
    }
    if (!open || Clock::now() > deadline) {
      ADD_FAILURE() << "no \"" << text << "\" after " << seen_ << " bytes of: " << out_
                    << "\nerrors: " << err_;
      return;
    }
    open = read_some();
  }
}

int ProgramRun::finish() {
  const auto deadline = Clock::now() + kPatience;
  bool open = output_fd_ >= 0;
  int status = 0;
  pid_t ended = 0;
  while ((open || (ended = ::waitpid(pid_, &status, WNOHANG)) == 0) && Clock::now() < deadline) {
    if (open) {
      open = read_some();
    } else {
      ::usleep(1000);
    }
  }
  if (ended == 0) {
    ADD_FAILURE() << "the program does not end; so far: " << out_ << "\nerrors: " << err_;
    return -1;
  }
  while (error_fd_ >= 0) read_some();
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lmdeploy::testing
