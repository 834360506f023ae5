#include "lmdeploy/http/message.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/expect_error.h"

namespace lmdeploy::http {
namespace {

TEST(Message, HeadersInAnyCase) {
  Headers headers;
  headers.add("Accept", "a");
  headers.add("X-Key", "1");
  headers.add("x-key", "2");
  EXPECT_EQ(*headers.find("X-KEY"), "1");
  headers.set("X-keY", "3");
  EXPECT_EQ(headers.fields().size(), 2u);
  EXPECT_EQ(*headers.find("x-key"), "3");
  headers.remove("ACCEPT");
  EXPECT_EQ(headers.find("accept"), nullptr);
  EXPECT_FALSE(equals_ignoring_case("a", "ab"));
}

TEST(Message, Targets) {
  const Target target = parse_target("/a%20b/%e4%bd%a0?x=1&y&x=2&&z=%26+%2B&=v");
  EXPECT_EQ(target.path, "/a b/\xe4\xbd\xa0");
  const std::vector<std::pair<std::string, std::string>> query = {
      {"x", "1"}, {"y", ""}, {"x", "2"}, {"z", "& +"}, {"", "v"}};
  EXPECT_EQ(target.query, query);
  EXPECT_EQ(*target.find("x"), "1");
  EXPECT_EQ(target.find("w"), nullptr);
  EXPECT_EQ(parse_target("/a+b").path, "/a+b");
  EXPECT_EQ(parse_target("/a?").query.size(), 0u);
  EXPECT_EQ(parse_target("*").path, "*");
}

TEST(Message, TargetsThatAreWholeUrls) {
  EXPECT_EQ(parse_target("http://host:1/a?b=c").path, "/a");
  EXPECT_EQ(*parse_target("HTTPS://host?b=c").find("b"), "c");
  EXPECT_EQ(parse_target("http://host").path, "/");
}

TEST(Message, BadInput_Targets) {
  for (const char* target : {"/%", "/%4", "/%4g", "/%g4", "/?a=%"})
    expect_error(ErrorCode::kInvalidData, {"escape", "two hex digits"}, [&] { parse_target(target); });
  for (const char* target : {"/%ff", "/%00", "/\xff", "/?a=%c3"})
    expect_error(ErrorCode::kInvalidData, {"UTF-8"}, [&] { parse_target(target); });
}

}  // namespace
}  // namespace lmdeploy::http
