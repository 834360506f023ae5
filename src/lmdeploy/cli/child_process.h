// Asking other programs: nvidia-smi, nvcc, gcc, python3.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace lmdeploy {

/// Runs `command` (found in PATH), with nothing to read and its errors dropped, and returns what it printed
/// (at most 1 MiB). Nothing when it cannot be started, fails, or takes longer than `timeout` (then it is
/// killed).
std::optional<std::string> output_of(const std::vector<std::string>& command,
                                     std::chrono::milliseconds timeout = std::chrono::seconds(10));

}  // namespace lmdeploy
