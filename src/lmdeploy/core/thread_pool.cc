#include "lmdeploy/core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int kSpins = 4000;  // about 20 us: longer than the gap between two ops of one step

void spin_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

thread_local bool inside_loop = false;

// CPUs granted by cgroup v2 (`cpu.max`: "quota period" or "max period"), or 0 when unlimited.
int cgroup_cpus() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return 0;
  return std::max(1, static_cast<int>(std::stod(quota) / period + 0.5));
}

}  // namespace

int available_cpus() {
  cpu_set_t set;
  int cpus = 1;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) cpus = CPU_COUNT(&set);
  if (const int quota = cgroup_cpus(); quota > 0) cpus = std::min(cpus, quota);
  return std::max(1, cpus);
}

std::thread start_thread(std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    throw Error(ErrorCode::kResourceExhausted,
                cat("cannot start a thread: ", error.code().message(),
                    "; use fewer threads or raise the limit of processes (ulimit -u)"));
  }
}

struct ThreadPool::State {
  std::vector<std::thread> threads;
  std::mutex run_mutex;  // one loop at a time

  // A loop is published by storing its body and raising `generation`; workers count themselves down in
  // `pending`.
  std::atomic<uint64_t> generation{0};
  std::atomic<int> pending{0};
  std::atomic<bool> stopping{false};
  const FunctionRef<void(int)>* body = nullptr;

  std::mutex sleep_mutex;
  std::condition_variable wake;
  int sleepers = 0;  // under sleep_mutex

  std::mutex error_mutex;
  std::exception_ptr error;

  uint64_t wait_for_work(uint64_t seen) {
    for (int i = 0; i < kSpins; ++i) {
      if (generation.load(std::memory_order_acquire) != seen)
        return generation.load(std::memory_order_acquire);
      spin_pause();
    }
    std::unique_lock lock(sleep_mutex);
    ++sleepers;
    wake.wait(lock, [&] { return generation.load(std::memory_order_acquire) != seen; });
    --sleepers;
    return generation.load(std::memory_order_acquire);
  }

  void publish() {
    {
      const std::lock_guard lock(sleep_mutex);
      generation.fetch_add(1, std::memory_order_release);
      if (sleepers == 0) return;
    }
    wake.notify_all();
  }

  void run_body(int worker) {
    inside_loop = true;
    try {
      (*body)(worker);
    } catch (...) {
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
    inside_loop = false;
  }

  void worker_main(int worker) {
    pthread_setname_np(pthread_self(), "lmd-worker");
    uint64_t seen = 0;
    while (true) {
      seen = wait_for_work(seen);
      if (stopping.load(std::memory_order_acquire)) return;
      run_body(worker);
      pending.fetch_sub(1, std::memory_order_release);
    }
  }

  void stop() {
    stopping.store(true, std::memory_order_release);
    publish();
    for (std::thread& thread : threads) thread.join();
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  const int total = num_threads > 0 ? num_threads : available_cpus();
  try {
    for (int worker = 1; worker < total; ++worker)
      state_->threads.push_back(start_thread([this, worker] { state_->worker_main(worker); }));
  } catch (const Error& error) {
    state_->stop();
    throw Error(error.code(), cat("thread ", state_->threads.size() + 2, " of ", total, ": ", error.what()));
  }
}

ThreadPool::~ThreadPool() { state_->stop(); }

int ThreadPool::num_threads() const { return static_cast<int>(state_->threads.size()) + 1; }

void ThreadPool::run(FunctionRef<void(int)> body) {
  State& s = *state_;
  if (inside_loop || s.threads.empty()) {
    for (int worker = 0; worker < num_threads(); ++worker) body(worker);
    return;
  }
  const std::lock_guard lock(s.run_mutex);
  s.body = &body;
  s.pending.store(static_cast<int>(s.threads.size()), std::memory_order_relaxed);
  s.publish();
  s.run_body(0);
  for (int i = 0; s.pending.load(std::memory_order_acquire) != 0; ++i) {
    if (i < kSpins) {
      spin_pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

void ThreadPool::parallel_for(int64_t count, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  const int64_t threads = num_threads();
  // About four pieces a thread: small enough to even out, large enough that the counter is not contended.
  const int64_t piece = std::max({grain, int64_t{1}, (count + threads * 4 - 1) / (threads * 4)});
  if (piece >= count || threads == 1 || inside_loop) {
    body(0, count);
    return;
  }
  std::atomic<int64_t> next{0};
  run([&](int) {
    for (int64_t begin = next.fetch_add(piece); begin < count; begin = next.fetch_add(piece))
      body(begin, std::min(begin + piece, count));
  });
}

}  // namespace lmdeploy
