#include "lmdeploy/cli/list_flag.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

namespace lmdeploy {
namespace {

std::vector<std::string> values_of(std::vector<std::string> arguments) {
  CLI::App app;
  std::vector<std::string> values;
  add_list_flag(app, {"--names", "Names", "name", /*distinct=*/true}, values);
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  return values;
}

TEST(ListFlag, BlanksAndCommasDivide) {
  const std::vector<std::string> want = {"a", "b c", "d"};
  EXPECT_EQ(values_of({"--names", "a", "b c", "d"}), want);
  EXPECT_EQ(values_of({"--names", "a, b c ,d"}), want);
  EXPECT_EQ(values_of({"--names", " a", "--names", "b c,\td"}), want);
  EXPECT_EQ(values_of({"--names=a,b c,d"}), want);
  EXPECT_TRUE(values_of({}).empty());
}

TEST(ListFlag, EmptyAndRepeatedValues) {
  for (const char* text : {"", " ", ",", "a,", ",a", "a,,b", "a,a", "a, b,a "})
    EXPECT_THROW(values_of({"--names", text}), CLI::ValidationError) << text;
}

}  // namespace
}  // namespace lmdeploy
