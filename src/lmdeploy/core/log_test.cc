#include "lmdeploy/core/log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>

#include "lmdeploy/core/mapped_file.h"

namespace lmdeploy {
namespace {

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Log, FileGetsLinesAndWarningsOnce) {
  const std::string path = testing::TempDir() + cat("log_test_", getpid(), ".log");
  configure_log({.color = LogColor::kNever, .file = path, .with_pid = true});
  log_message(LogLevel::kWarning, "the same warning");
  log_message(LogLevel::kWarning, "the same warning");
  log_message(LogLevel::kError, "an error");
  log_message(LogLevel::kError, "an error");
  log_message(LogLevel::kDebug, "below the level");
  configure_log({});
  const std::string text = read_file(path);
  std::remove(path.c_str());
  EXPECT_EQ(count_of(text, "the same warning"), 1u);
  EXPECT_EQ(count_of(text, cat(" - lmdeploy - ", getpid(), " - error - an error")), 2u);
  EXPECT_EQ(count_of(text, "below the level"), 0u);
}

TEST(Log, UnwritableFileIsAnError) {
  EXPECT_THROW(configure_log({.color = LogColor::kAuto, .file = "/proc/no/such/file"}), Error);
}

}  // namespace
}  // namespace lmdeploy
