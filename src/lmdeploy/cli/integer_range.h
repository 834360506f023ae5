// Integers on the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace lmdeploy {

/// For CLI::Option::transform: refuses anything but a decimal integer from `min` to `max`. By itself CLI11
/// reads 99999999999999999999 as the largest integer, and 010 as 8.
CLI::Validator integer_in(int64_t min, int64_t max);

}  // namespace lmdeploy
