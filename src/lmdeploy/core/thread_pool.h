// A fixed set of threads that run one parallel loop at a time with little delay between loops.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

namespace lmdeploy {

/// A non-owning reference to a callable: two pointers, no allocation. The callable must outlive the call.
template <typename Signature>
class FunctionRef;
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit by intent
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

/// Threads spin for a short time between loops, then sleep; an idle pool costs nothing. run() may be called
/// from any thread, one call at a time (a second caller waits); nested calls from inside a loop run inline.
class ThreadPool {
 public:
  /// `num_threads` counts the calling thread; 0: available_cpus(). Throws Error(kResourceExhausted).
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;
  /// Calls body(worker) once for each worker in [0, num_threads()) and returns when all are done. The first
  /// exception of a body is rethrown here.
  void run(FunctionRef<void(int worker)> body);
  /// Calls body(begin, end) on disjoint pieces that cover [0, count). Pieces are handed out dynamically and
  /// hold at least `grain` items, but for the last.
  void parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t begin, int64_t end)> body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A thread that runs `body`. Throws Error(kResourceExhausted) where the system has none left.
std::thread start_thread(std::function<void()> body);

/// CPUs that this process may use: the affinity mask, capped by the cgroup quota. At least 1.
int available_cpus();

}  // namespace lmdeploy
