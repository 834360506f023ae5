// Words for users.
#include "lmdeploy/core/error.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>

namespace lmdeploy {
namespace {

TEST(Error, DescribesWhatTheStandardLibraryThrows) {
  EXPECT_EQ(describe(Error(ErrorCode::kIo, "open x: gone")), "open x: gone");
  EXPECT_EQ(describe(std::bad_alloc()), "out of memory");
  const std::filesystem::filesystem_error refused("status", "/secret/x.gguf",
                                                  std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(describe(refused), "/secret/x.gguf: Permission denied");
}

}  // namespace
}  // namespace lmdeploy
