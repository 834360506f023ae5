// The GIL, taken and let go of by threads that may outlive the interpreter.
//
// Python before 3.14 ends a thread that asks for the GIL once the interpreter has begun to end: by
// pthread_exit(), which unwinds the stack and meets frames that are noexcept, nanobind's among them:
// std::terminate(). Such a thread is kept waiting instead, as Python 3.14 does it, until the process has
// ended.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>
#include <unistd.h>

#include <utility>

namespace lmdeploy::python {

/// Runs `use`, which calls into Python. If the interpreter ends under it, the call never returns.
template <typename Use>
decltype(auto) outlive_interpreter(Use&& use) {
  try {
    return std::forward<Use>(use)();
  } catch (const abi::__forced_unwind&) {
    while (true) pause();
  }
}

/// Lets go of the GIL while it lives.
class GilRelease {
 public:
  GilRelease() : state_(PyEval_SaveThread()) {}
  ~GilRelease() {
    outlive_interpreter([this] { PyEval_RestoreThread(state_); });
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

/// Holds the GIL while it lives, on any thread.
class GilAcquire {
 public:
  GilAcquire() : state_(outlive_interpreter([] { return PyGILState_Ensure(); })) {}
  ~GilAcquire() { PyGILState_Release(state_); }
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;

 private:
  PyGILState_STATE state_;
};

using ReleaseGil = nanobind::call_guard<GilRelease>;

}  // namespace lmdeploy::python
