// A Python function that native code calls while it works.
#pragma once

#include <chrono>

#include "bindings/bindings.h"
#include "bindings/signals.h"

namespace lmdeploy::python {

/// Calls `callback(args...)` with the GIL at most once per kSignalInterval, and handles signals on the way:
/// what a handler or the callback raises goes through the native caller.
class PacedCallback {
 public:
  explicit PacedCallback(nb::handle callback) : callback_(callback) {}

  template <typename... Args>
  void operator()(bool force, Args... args) {
    const auto now = std::chrono::steady_clock::now();
    if (!force && now - last_ < kSignalInterval) return;
    last_ = now;
    const GilAcquire acquire;
    outlive_interpreter([&] {
      check_signals();
      if (!callback_.is_none()) callback_(args...);
    });
  }

 private:
  nb::handle callback_;  // outlives the call that this object lives in
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace lmdeploy::python
