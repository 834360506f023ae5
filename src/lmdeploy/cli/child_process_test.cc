#include "lmdeploy/cli/child_process.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

TEST(ChildProcess, OutputFailureAbsenceAndTimeout) {
  EXPECT_EQ(output_of({"printf", "a b"}), "a b");
  EXPECT_EQ(output_of({"cat"}), "");  // nothing to read
  EXPECT_EQ(output_of({"false"}), std::nullopt);
  EXPECT_EQ(output_of({"no-such-program-anywhere"}), std::nullopt);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(output_of({"sleep", "60"}, std::chrono::milliseconds(100)), std::nullopt);
  EXPECT_EQ(output_of({"yes"}), std::nullopt);  // too much
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace lmdeploy
