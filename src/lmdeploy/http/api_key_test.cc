#include "lmdeploy/http/api_key.h"

#include <gtest/gtest.h>

namespace lmdeploy::http {
namespace {

Headers with(const std::string& name, const std::string& value) {
  Headers headers;
  headers.add(name, value);
  return headers;
}

TEST(ApiKey, F70_OneOfSeveral) {
  const std::vector<std::string> keys = {"k1", "k2", ""};
  for (const char* value : {"Bearer k1", "bearer k2", "BEARER k1", "Bearer  k1"})
    EXPECT_TRUE(has_key(with("authorization", value), keys)) << value;
  for (const char* value :
       {"", "Bearer", "Bearer ", "Bearer k", "Bearer k11", "Bearer k3", "Basic k1", "k1", "Bearer k1k1"})
    EXPECT_FALSE(has_key(with("Authorization", value), keys)) << value;
  EXPECT_TRUE(has_key(with("x-api-key", "k1"), keys));
  EXPECT_FALSE(has_key(with("x-api-key", ""), keys));
  EXPECT_FALSE(has_key({}, keys));
}

TEST(ApiKey, EitherHeaderIsEnough) {
  Headers both = with("Authorization", "Bearer something-else");
  both.add("X-Api-Key", "k1");
  EXPECT_TRUE(has_key(both, {"k1"}));
  EXPECT_TRUE(has_key(both, {"something-else"}));
  EXPECT_FALSE(has_key(both, {"k2"}));
}

}  // namespace
}  // namespace lmdeploy::http
