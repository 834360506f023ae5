#include "lmdeploy/serve/every.h"

#include <gtest/gtest.h>

#include <atomic>

namespace lmdeploy {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

TEST(Every, AgainAndAgainUntilItIsGone) {
  std::atomic<int> calls = 0;
  {
    const Every every(milliseconds(1), [&] { ++calls; });
    while (calls < 3) std::this_thread::yield();
  }
  const int seen = calls;
  std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(calls, seen);
}

TEST(Every, EndsAtOnceHoweverLongTheInterval) {
  const Every every(hours(1), [] { FAIL(); });
}

}  // namespace
}  // namespace lmdeploy
