// The pool covers each item once, passes exceptions on, and stays usable from several threads.
#include "lmdeploy/core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

TEST(ThreadPool, EachItemIsVisitedOnce) {
  ThreadPool pool(4);
  for (const int64_t count : {0, 1, 3, 4, 5, 1000, 100003}) {
    std::vector<std::atomic<int>> visits(static_cast<size_t>(count));
    pool.parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) visits[static_cast<size_t>(i)].fetch_add(1);
    });
    for (const auto& v : visits) ASSERT_EQ(v.load(), 1);
  }
}

TEST(ThreadPool, PiecesHoldAtLeastTheGrain) {
  ThreadPool pool(3);
  std::atomic<int> pieces{0};
  pool.parallel_for(100, 30, [&](int64_t begin, int64_t end) {
    if (end != 100) {
      EXPECT_GE(end - begin, 30);
    }
    pieces.fetch_add(1);
  });
  EXPECT_LE(pieces.load(), 4);
}

TEST(ThreadPool, RunCallsEveryWorkerAlsoAfterSleeping) {
  ThreadPool pool(3);
  for (int round = 0; round < 200; ++round) {
    std::atomic<int> mask{0};
    pool.run([&](int worker) { mask.fetch_or(1 << worker); });
    ASSERT_EQ(mask.load(), 7);
    if (round % 50 == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the workers go to sleep
  }
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolGoesOn) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([](int worker) {
    if (worker == 1) throw std::runtime_error("from a worker");
  }),
               std::runtime_error);
  std::atomic<int> calls{0};
  pool.run([&](int) { calls.fetch_add(1); });
  EXPECT_EQ(calls.load(), 2);
}

TEST(ThreadPool, NestedLoopsRunInline) {
  ThreadPool pool(2);
  std::atomic<int64_t> sum{0};
  pool.parallel_for(8, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      pool.parallel_for(10, 1, [&](int64_t b, int64_t e) { sum.fetch_add(e - b); });
  });
  EXPECT_EQ(sum.load(), 80);
}

TEST(ThreadPool, CallersOnSeveralThreadsTakeTurns) {
  ThreadPool pool(2);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int c = 0; c < 4; ++c)
    callers.emplace_back([&] {
      for (int i = 0; i < 50; ++i)
        pool.parallel_for(100, 1, [&](int64_t begin, int64_t end) { sum.fetch_add(end - begin); });
    });
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 4 * 50 * 100);
}

TEST(ThreadPool, CountsUsableCpus) {
  EXPECT_GE(available_cpus(), 1);
  EXPECT_EQ(ThreadPool(5).num_threads(), 5);
  EXPECT_EQ(ThreadPool(0).num_threads(), available_cpus());
}

TEST(ThreadPool, SaysThatNoMoreThreadsCanBeStarted) {
  pthread_attr_t usual, impossible;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  pthread_attr_init(&impossible);
  pthread_attr_setstacksize(&impossible, size_t{1} << 47);  // all of the address space
  ASSERT_EQ(pthread_setattr_default_np(&impossible), 0);
  std::string message;
  try {
    ThreadPool pool(3);
  } catch (const Error& error) {
    message = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
  }
  ASSERT_EQ(pthread_setattr_default_np(&usual), 0);
  EXPECT_NE(message.find("thread 2 of 3: cannot start a thread: Resource temporarily unavailable"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace lmdeploy
