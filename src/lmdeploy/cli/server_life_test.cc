#include "lmdeploy/cli/server_life.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <iostream>
#include <thread>

namespace lmdeploy {
namespace {

// A request that keeps all of a server's threads busy keeps stop() waiting for them.
void end_a_server_that_hangs(const std::function<bool()>& drain) {
  StopSignals signals;
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    kill(getpid(), SIGINT);
  }).detach();
  const auto hang = [] { std::this_thread::sleep_for(std::chrono::hours(1)); };
  const Console console{.out = std::cout, .err = std::cerr};
  end_server(drain, hang, signals, SIGTERM, console);
}

// F74: ten seconds after Ctrl-C under load nothing is left; what is asked for holds for every signal.
TEST(DrainTime, F74_CtrlCWaitsLessThanTheSystem) {
  EXPECT_EQ(drain_time(std::nullopt, SIGTERM).count(), 30);
  EXPECT_EQ(drain_time(std::nullopt, SIGINT).count(), 8);
  EXPECT_EQ(drain_time(60, SIGINT).count(), 60);
  EXPECT_EQ(drain_time(0, SIGTERM).count(), 0);
}

TEST(EndServer, ASecondSignalEndsOneThatHangs) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(end_a_server_that_hangs([] { return true; }), testing::ExitedWithCode(128 + SIGTERM), "");
  EXPECT_EXIT(end_a_server_that_hangs([] { return false; }), testing::ExitedWithCode(128 + SIGTERM),
              "cut off");
}

TEST(StopSignals, AFileThatHasEndedIsASigtermOnce) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  StopSignals signals(ends[0]);
  signals.wake();
  EXPECT_EQ(signals.wait(), 0);  // somebody can still write
  close(ends[1]);
  EXPECT_EQ(signals.wait(), SIGTERM);
  signals.wake();
  EXPECT_EQ(signals.wait(), 0);
  close(ends[0]);
}

// lmdeploy.serve()'s program sends SIGTERM and ends: what runs has its time nevertheless.
TEST(StopSignals, AFileThatEndsAfterASignalIsNoSecondOne) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  StopSignals signals(ends[0]);
  kill(getpid(), SIGTERM);
  EXPECT_EQ(signals.wait(), SIGTERM);
  close(ends[1]);
  signals.wake();
  EXPECT_EQ(signals.wait(), 0);
  close(ends[0]);
}

}  // namespace
}  // namespace lmdeploy
