// What is learned, and what is decided by it.
#include "lmdeploy/engine/guess_policy.h"

#include <gtest/gtest.h>

#include <vector>

namespace lmdeploy {
namespace {

TEST(GuessOdds, FollowOutcomesAndComeBack) {
  GuessOdds odds;
  const size_t kind = GuessOdds::kind_of(2);
  const double usual = odds.of(kind), other = odds.of(GuessOdds::kind_of(20));
  for (int i = 0; i < 30; ++i) odds.learn(kind, false);
  EXPECT_LT(odds.of(kind), 0.05);
  EXPECT_EQ(odds.of(GuessOdds::kind_of(20)), other);
  for (int i = 0; i < 1000; ++i) odds.rest();
  EXPECT_NEAR(odds.of(kind), usual, 0.02);
  for (int i = 0; i < 30; ++i) odds.learn(kind, true);
  EXPECT_GT(odds.of(kind), 0.95);
}

TEST(GuessOdds, LongerMatchesAreLikelier) {
  const GuessOdds odds;
  double before = 0;
  for (int64_t length = 2; length < 20; ++length) {
    EXPECT_GE(odds.of(GuessOdds::kind_of(length)), before) << length;
    before = odds.of(GuessOdds::kind_of(length));
  }
}

TEST(StepTimes, AreMedians) {
  StepTimes times;
  EXPECT_EQ(times.token(4), 0) << "not known";
  for (int i = 0; i < 200; ++i) times.learn(4, 0, i % 3 == 0 ? 1000 : 8);  // a busy machine now and then
  EXPECT_NEAR(times.token(4), 2, 0.5);
  EXPECT_EQ(times.token(3), 0);
  for (int i = 0; i < 200; ++i) times.learn(4, 3, i % 3 == 0 ? 1000 : 14);
  EXPECT_NEAR(times.guess(4), 2, 0.5);
}

// A draft model as slow as the model: found out within a few steps.
TEST(StepTimes, LearnFastAtFirst) {
  StepTimes times;
  for (int i = 0; i < 2; ++i) times.learn(1, 0, 1);
  for (int i = 0; i < 7; ++i) times.learn(1, 3, 4.5);
  EXPECT_GT(times.guess(1), 0.9);
  EXPECT_EQ(times.token(1), 1);
}

TEST(StepTimes, ADearGuessGetsCheaperUntilItIsTriedAgain) {
  StepTimes times;
  times.learn(1, 0, 1);
  for (int i = 0; i < 100; ++i) times.learn(1, 1, 100);
  const double dear = times.guess(1);
  EXPECT_GT(dear, 50);
  for (int i = 0; i < 600; ++i) times.learn(1, 0, 1);
  EXPECT_LT(times.guess(1), 1);
}

TEST(StepTimes, ManySequencesAreNotGuessedFor) {
  StepTimes times;
  times.learn(StepTimes::kMostSequences + 1, 0, 1);
  EXPECT_EQ(times.token(StepTimes::kMostSequences + 1), 0);
}

TEST(Worthwhile, WhatBringsTokensFaster) {
  const std::vector<double> even(8, 0.9), bad(8, 0.1), falling = {0.9, 0.5, 0.1, 0.9};
  EXPECT_EQ(worthwhile(even, 1, 0.01), 8);
  EXPECT_EQ(worthwhile(even, 1, 2), 0) << "dearer than a step";
  EXPECT_EQ(worthwhile(bad, 1, 0.2), 0);
  EXPECT_EQ(worthwhile(bad, 1, 0.05), 1);
  EXPECT_EQ(worthwhile(falling, 1, 0.15), 2);
  EXPECT_EQ(worthwhile(even, 0, 0.1), 0) << "nothing is known";
  EXPECT_EQ(worthwhile({}, 1, 0.1), 0);
}

}  // namespace
}  // namespace lmdeploy
