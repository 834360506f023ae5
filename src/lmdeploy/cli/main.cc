// The native program `lmdeploy`.
#include <csignal>
#include <iostream>

#include "lmdeploy/cli/program.h"

int main(int argc, char** argv) {
  // A reader that has gone ends the program quietly, also when the parent process had switched that off.
  std::signal(SIGPIPE, SIG_DFL);
  return lmdeploy::run_program({argv + 1, argv + argc}, std::cout, std::cerr);
}
