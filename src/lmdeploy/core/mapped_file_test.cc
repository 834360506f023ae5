// Files that cannot be read are refused, at once and by name.
#include "lmdeploy/core/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

template <typename Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MappedFile, ANamedPipeIsRefusedWithoutWaitingForAWriter) {
  const std::string path = testing::TempDir() + "pipe.gguf";
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(message_of([&] { MappedFile file(path); }), "open " + path + ": not a regular file");
  EXPECT_EQ(message_of([&] { read_file(path); }), "open " + path + ": not a regular file");
  std::filesystem::remove(path);
}

TEST(MappedFile, WhatIsNoFileIsRefusedByName) {
  EXPECT_EQ(message_of([&] { MappedFile file("/nowhere/x"); }), "open /nowhere/x: No such file or directory");
  EXPECT_EQ(message_of([&] { MappedFile file("/"); }), "open /: not a regular file");
}

}  // namespace
}  // namespace lmdeploy
