#include "lmdeploy/cli/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

extern char** environ;

namespace lmdeploy {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxOutputBytes = size_t{1} << 20;

std::optional<pid_t> spawn(const std::vector<std::string>& command, int output_fd) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, output_fd, STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t pid = 0;
  const int failure = ::posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return std::nullopt;
  return pid;
}

/// Reads until the other end closes. False: the deadline passed, or there was too much.
bool read_all(int fd, Clock::time_point deadline, std::string& text) {
  while (text.size() < kMaxOutputBytes) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready = {fd, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) == 0) return false;
    char bytes[4096];
    const ssize_t count = ::read(fd, bytes, sizeof(bytes));
    if (count == 0) return true;
    if (count > 0) text.append(bytes, static_cast<size_t>(count));
  }
  return false;
}

}  // namespace

std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return std::nullopt;
  const std::optional<pid_t> pid = spawn(command, ends[1]);
  ::close(ends[1]);
  std::string text;
  const bool complete = pid && read_all(ends[0], Clock::now() + timeout, text);
  ::close(ends[0]);
  if (!pid) return std::nullopt;
  if (!complete) ::kill(*pid, SIGKILL);
  int status = 0;
  ::waitpid(*pid, &status, 0);
  if (!complete || status != 0) return std::nullopt;
  return text;
}

}  // namespace lmdeploy
