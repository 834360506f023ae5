#include "lmdeploy/kernels/device_support.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

// F80.
TEST(DeviceSupport, OldCardsAreRefusedWithTheCudaThatBuildsForThem) {
  for (const auto& [major, minor] : {std::pair{7, 5}, {8, 0}, {8, 9}, {9, 0}, {12, 0}})
    EXPECT_EQ(device_problem({.name = "card", .major = major, .minor = minor}), "") << major << "." << minor;
  EXPECT_EQ(
      device_problem({.name = "Tesla V100", .major = 7, .minor = 0}),
      "Tesla V100 has compute capability 7.0, at least 7.5 is needed: this program is built with CUDA 13, "
      "and CUDA 12.9 is the last release that builds for this card");
  EXPECT_NE(device_problem({.name = "Tesla P100", .major = 6, .minor = 0}).find("CUDA 12.9"),
            std::string::npos);
  EXPECT_NE(device_problem({.name = "Tesla K80", .major = 3, .minor = 7}).find("CUDA 11.8"),
            std::string::npos);
}

TEST(DeviceSupport, WantOfMemorySaysHowMuch) {
  constexpr size_t kMiB = size_t{1} << 20;
  EXPECT_EQ(out_of_device_memory(512 * kMiB, 100 * kMiB, 1000 * kMiB),
            "out of GPU memory: 512 MiB asked for, 100 of 1000 MiB are free, 412 MiB are missing");
  EXPECT_EQ(out_of_device_memory(kMiB + 1, kMiB, 1000 * kMiB),
            "out of GPU memory: 2 MiB asked for, 1 of 1000 MiB are free, 1 MiB are missing")
      << "what is missing is rounded up";
  EXPECT_EQ(out_of_device_memory(10 * kMiB, 100 * kMiB, 1000 * kMiB),
            "out of GPU memory: 10 MiB asked for, 100 of 1000 MiB are free")
      << "in pieces";
}

// F58.
TEST(DeviceSupport, LostRanksLeadToASettingThatIsNotInUse) {
  EXPECT_NE(advice_for_ranks(/*nccl=*/false, /*through_host=*/false).find("--communicator host"),
            std::string::npos);
  EXPECT_NE(advice_for_ranks(/*nccl=*/true, /*through_host=*/false).find("NCCL_P2P_DISABLE=1"),
            std::string::npos);
  EXPECT_EQ(advice_for_ranks(/*nccl=*/false, /*through_host=*/true), "; try tp 1");
}

}  // namespace
}  // namespace lmdeploy
