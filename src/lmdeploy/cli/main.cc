// The native program `lmdeploy`.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "lmdeploy/cli/program.h"

namespace {

/// Otherwise the next file or pipe would get the number of a missing one. An input is then empty, errors are
/// dropped, and output fails as on a closed one: its descriptor is for reading.
void open_missing_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

int main(int argc, char** argv) {
  open_missing_descriptors();
  // A reader that has gone ends the program quietly, also when the parent process had switched that off.
  std::signal(SIGPIPE, SIG_DFL);
  return lmdeploy::run_program({argv + 1, argv + argc}, std::cout, std::cerr);
}
