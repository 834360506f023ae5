// When steps are recorded, and whose recording makes room.
#include "lmdeploy/models/step_recordings.h"

#include <gtest/gtest.h>

#include "lmdeploy/kernels/device_mirror.h"

namespace lmdeploy {
namespace {

constexpr int64_t kCalls = StepRecordings::kRunsBefore;

/// Counts recordings, and what is run from them.
class CountingKernels final : public DeviceMirror {
 public:
  CountingKernels() : DeviceMirror(make_ref_kernels(std::make_shared<ThreadPool>(1))) {}

  std::unique_ptr<Recording> record(const std::function<void()>&) const override {
    class Counting final : public Recording {
     public:
      explicit Counting(const CountingKernels& kernels) : kernels_(kernels) {}
      bool run() override {
        if (kernels_.is_stale) return false;
        ++kernels_.num_runs;
        return true;
      }

     private:
      const CountingKernels& kernels_;
    };
    ++num_made;
    return has_memory ? std::make_unique<Counting>(*this) : nullptr;
  }

  mutable int64_t num_made = 0, num_runs = 0;
  bool has_memory = true, is_stale = false;
};

class StepRecordingsTest : public ::testing::Test {
 protected:
  void run(int64_t key, int64_t times) {
    for (int64_t i = 0; i < times; ++i) recordings_.run({key}, [&] { ++num_calls_; });
  }
  void expect(int64_t calls, int64_t made, int64_t runs) const {
    EXPECT_EQ(num_calls_, calls);
    EXPECT_EQ(kernels_.num_made, made);
    EXPECT_EQ(kernels_.num_runs, runs);
  }

  CountingKernels kernels_;
  StepRecordings recordings_{kernels_};
  int64_t num_calls_ = 0;
};

TEST_F(StepRecordingsTest, StepsThatKeepComingAreRecorded) {
  run(1, kCalls);
  expect(kCalls, 0, 0);
  run(1, 1);
  expect(kCalls, 1, 1);
  run(1, 5);
  expect(kCalls, 1, 6);
}

TEST_F(StepRecordingsTest, StepsInTurnsAreCountedByThemselves) {
  for (int64_t i = 0; i < kCalls; ++i) run(1, 1), run(2, 1);
  expect(2 * kCalls, 0, 0);
  run(2, 1);
  run(1, 1);
  expect(2 * kCalls, 2, 2);
}

TEST_F(StepRecordingsTest, TheOneNotUsedForLongestMakesRoom) {
  run(1, kCalls + 1);
  run(2, kCalls + 1);
  for (int64_t key = 3; key <= static_cast<int64_t>(StepRecordings::kMostKept); ++key) run(key, 1);
  run(1, 1);
  run(1000, 1);  // takes the place of 2
  const int64_t calls = num_calls_;
  run(1, 1);
  expect(calls, 2, 4);
  run(2, 1);
  expect(calls + 1, 2, 4);
}

TEST_F(StepRecordingsTest, WithoutARecordingOpsAreCalls) {
  run(1, kCalls + 1);
  kernels_.is_stale = true;  // a new recording does not run either
  run(1, 1);
  expect(kCalls + 1, 2, 1);
  kernels_.is_stale = false, kernels_.has_memory = false;
  run(2, kCalls + 1);
  expect(2 * kCalls + 2, 3, 1);
}

}  // namespace
}  // namespace lmdeploy
