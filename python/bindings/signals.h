// Waiting without the GIL while Ctrl-C still works.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "bindings/gil.h"

namespace lmdeploy::python {

/// How long native code waits before pending signals are looked at.
constexpr std::chrono::milliseconds kSignalInterval{50};

/// Runs the Python signal handlers that are due (main thread only). Throws what they raise:
/// KeyboardInterrupt.
inline void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
}

/// Calls attempt(slice) without the GIL until done(result) or `timeout_s` seconds have passed; unset: no
/// limit. `interrupted` is called before an exception of a signal handler goes on.
template <typename Attempt, typename Done, typename Interrupted>
auto wait_with_signals(std::optional<double> timeout_s, Attempt attempt, Done done, Interrupted interrupted) {
  using Clock = std::chrono::steady_clock;
  const auto limit = std::chrono::duration<double>(std::clamp(timeout_s.value_or(1e9), 0.0, 1e9));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(limit);
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    auto result = [&] {
      const GilRelease release;
      return attempt(std::clamp(left, std::chrono::milliseconds{0}, kSignalInterval));
    }();
    if (done(result) || left <= kSignalInterval) return result;
    try {
      check_signals();
    } catch (...) {
      interrupted();
      throw;
    }
  }
}

}  // namespace lmdeploy::python
