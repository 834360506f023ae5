#include "lmdeploy/http/request_id.h"

#include <gtest/gtest.h>

namespace lmdeploy::http {
namespace {

TEST(RequestId, OnlyHarmlessOnesAreTaken) {
  const auto id = [](const char* given) {
    Headers headers;
    headers.add("X-Request-Id", given);
    return request_id(headers);
  };
  EXPECT_EQ(id("aZ09-_.:"), "aZ09-_.:");
  for (const std::string& bad :
       std::vector<std::string>{"", "a b", "a\r\nb", "\xc3\xa4", "a\"", std::string(129, 'a')}) {
    EXPECT_NE(id(bad.c_str()), bad);
    EXPECT_EQ(id(bad.c_str()).size(), 32u);
  }
}

TEST(RequestId, RandomNamesDiffer) {
  EXPECT_EQ(random_name(22).size(), 22u);
  EXPECT_NE(random_name(22), random_name(22));
}

}  // namespace
}  // namespace lmdeploy::http
