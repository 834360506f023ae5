#include "lmdeploy/core/system_memory.h"

#include <gtest/gtest.h>

namespace lmdeploy {
namespace {

TEST(SystemMemory, AvailableIsPartOfTotal) {
  const SystemMemory memory = system_memory();
  EXPECT_GE(memory.total_bytes, size_t{64} << 20);
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace lmdeploy
