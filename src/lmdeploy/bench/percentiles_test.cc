#include "lmdeploy/bench/percentiles.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

TEST(Percentiles, OfManyTheOneAtThatShare) {
  std::vector<double> samples;
  for (int i = 100; i > 0; --i) samples.push_back(i - 1);
  const Percentiles p = percentiles_of(samples);
  EXPECT_EQ(p.p50, 50);
  EXPECT_EQ(p.p90, 90);
  EXPECT_EQ(p.p99, 99);
}

TEST(Percentiles, OfFewAndNone) {
  EXPECT_EQ(percentiles_of({}).p99, 0);
  const Percentiles one = percentiles_of({3});
  EXPECT_EQ(one.p50, 3);
  EXPECT_EQ(one.p99, 3);
  EXPECT_EQ(percentile({1, 2}, 1.0), 2);
}

}  // namespace
}  // namespace lmdeploy
