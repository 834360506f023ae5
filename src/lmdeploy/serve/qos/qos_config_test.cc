#include "lmdeploy/serve/qos/qos_config.h"

#include <gtest/gtest.h>

#include "lmdeploy/core/expect_error.h"

namespace lmdeploy {
namespace {

QosConfig parse(const std::string& text) {
  return parse_qos_config(parse_json(text, "qos.json"), "qos.json");
}

TEST(QosConfig, GroupsInTheOrderOfTheirPriority) {
  const QosConfig config =
      parse(R"({"enable_user_qos": 1, "user_groups": ["Gold", "Bronze"], "user_group_map": {
    "Bronze": [{"id": "b", "quota_pct": 30.5}, {"id": "default", "quota_pct": 0}],
    "Gold": [{"id": "g", "quota_pct": 100}]}})");
  EXPECT_TRUE(config.enabled);
  ASSERT_EQ(config.groups.size(), 2u);
  EXPECT_EQ(config.groups[0].name, "Gold");
  EXPECT_EQ(config.groups[1].users[0].quota, 30.5);
  EXPECT_EQ(config.groups[1].users[1].id, "default");
}

TEST(QosConfig, SwitchedOffNeedsNothingElse) {
  EXPECT_FALSE(parse(R"({"enable_user_qos": false})").enabled);
  EXPECT_FALSE(parse(R"({"enable_user_qos": 0, "user_groups": 3})").enabled);
}

TEST(QosConfig, AUserBelongsToOneGroup) {
  const auto with = [](const std::string& id) {
    const std::string users = R"([{"id": ")" + id + R"(", "quota_pct": 1}])";
    return R"({"user_groups": ["G", "H"], "user_group_map": {"G": )" + users + R"(, "H": )" + users + "}}";
  };
  expect_error(ErrorCode::kInvalidData, {"qos.json", "user \"a\" is in two groups, \"G\" and \"H\""},
               [&] { parse(with("a")); });
  EXPECT_EQ(parse(with("default")).groups.size(), 2u);
}

TEST(QosConfig, BadInput) {
  const auto refuses = [](const std::string& text, std::vector<std::string> words) {
    words.emplace_back("qos.json");
    expect_error(ErrorCode::kInvalidData, words, [&] { parse(text); });
  };
  const auto with_users = [](const std::string& users) {
    return R"({"user_groups": ["G"], "user_group_map": {"G": )" + users + "}}";
  };
  refuses("[]", {"an array"});
  refuses("{}", {"user_groups"});
  refuses(R"({"enable_user_qos": "yes"})", {"enable_user_qos", "true or false"});
  refuses(R"({"user_groups": ["G"]})", {"user_group_map"});
  refuses(R"({"user_groups": "G", "user_group_map": {}})", {"user_groups", "array"});
  refuses(R"({"user_groups": [], "user_group_map": {}})", {"empty"});
  refuses(R"({"user_groups": [3], "user_group_map": {}})", {"user_groups", "a string"});
  refuses(R"({"user_groups": ["G"], "user_group_map": {}})", {"group \"G\"", "no entry"});
  refuses(R"({"user_groups": ["G"], "user_group_map": []})", {"user_group_map", "an object"});
  refuses(R"({"user_groups": ["G"], "user_group_map": {"G": [{"id": "a", "quota_pct": 1}], "H": []}})",
          {"group \"H\"", "once"});
  refuses(R"({"user_groups": ["G", "G"], "user_group_map": {"G": [{"id": "a", "quota_pct": 1}]}})", {"once"});
  refuses(with_users("3"), {"group \"G\"", "an integer"});
  refuses(with_users("[3]"), {"group \"G\"", "id"});
  refuses(with_users("[]"), {"group \"G\"", "sum to 0"});
  refuses(with_users(R"([{"quota_pct": 1}])"), {"id"});
  refuses(with_users(R"([{"id": 1, "quota_pct": 1}])"), {"id", "a string"});
  refuses(with_users(R"([{"id": "a"}])"), {"quota_pct"});
  refuses(with_users(R"([{"id": "a", "quota_pct": -1}])"), {"\"a\"", "-1"});
  refuses(with_users(R"([{"id": "a", "quota_pct": "many"}])"), {"\"a\"", "many"});
  refuses(with_users(R"([{"id": "a", "quota_pct": 0}])"), {"sum to 0"});
  refuses(with_users(R"([{"id": "a", "quota_pct": 1}, {"id": "a", "quota_pct": 2}])"), {"\"a\" twice"});
}

}  // namespace
}  // namespace lmdeploy
