// The whole program as a function: `lmdeploy ARGUMENTS`.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace lmdeploy {

/// Returns the exit code: 0, 1 for an error (one line on `err`), 2 for a wrong command line. `arguments` come
/// without the program's name.
int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err);

}  // namespace lmdeploy
