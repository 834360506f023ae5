#include "lmdeploy/serve/qos/qos_config.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <map>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw Error(ErrorCode::kInvalidData, cat(where, ": ", what));
}

const Json& member(const JsonObject& object, const char* key, const std::string& where) {
  const Json* value = object.if_contains(key);
  if (value == nullptr) refuse(where, cat("there is no \"", key, "\""));
  return *value;
}

std::string text(const Json& value, const std::string& what, const std::string& where) {
  if (!value.is_string()) refuse(where, cat(what, " is ", json_kind(value), ", expected a string"));
  return std::string(value.get_string());
}

QosUser parse_user(const Json& value, const std::string& where) {
  if (!value.is_object())
    refuse(where, cat("a user is ", json_kind(value), ", expected {\"id\", \"quota_pct\"}"));
  QosUser user;
  user.id = text(member(value.get_object(), "id", where), "\"id\"", where);
  const Json& quota = member(value.get_object(), "quota_pct", where);
  user.quota = quota.is_number() ? quota.to_number<double>() : -1;
  if (!(user.quota >= 0) || !std::isfinite(user.quota))
    refuse(where, cat("\"quota_pct\" of user \"", user.id, "\" is ", to_json_text(quota),
                      ", expected a number from 0"));
  return user;
}

QosGroup parse_group(const std::string& name, const JsonObject& map, const std::string& file) {
  const std::string where = cat(file, ": group \"", name, "\"");
  const Json* users = map.if_contains(name);
  if (users == nullptr) refuse(where, "has no entry in \"user_group_map\"");
  if (!users->is_array()) refuse(where, cat("is ", json_kind(*users), ", expected an array of users"));
  QosGroup group{name, {}};
  double sum = 0;
  for (const Json& item : users->get_array()) {
    const QosUser user = parse_user(item, where);
    const auto same = [&](const QosUser& other) { return other.id == user.id; };
    if (std::any_of(group.users.begin(), group.users.end(), same))
      refuse(where, cat("has the user \"", user.id, "\" twice"));
    sum += user.quota;
    group.users.push_back(user);
  }
  if (!(sum > 0)) refuse(where, "has quotas that sum to 0; there is nothing to share by");
  return group;
}

/// "default" stands for all whom nobody names, so each group may have one.
void refuse_users_of_two_groups(const std::vector<QosGroup>& groups, const std::string& where) {
  std::map<std::string, std::string> group_of;
  for (const QosGroup& group : groups)
    for (const QosUser& user : group.users) {
      const auto [known, added] = group_of.emplace(user.id, group.name);
      if (!added && user.id != "default")
        refuse(where, cat("the user \"", user.id, "\" is in two groups, \"", known->second, "\" and \"",
                          group.name, "\""));
    }
}

}  // namespace

QosConfig parse_qos_config(const Json& value, const std::string& where) {
  if (!value.is_object()) refuse(where, cat("found ", json_kind(value), ", expected an object"));
  const JsonObject& object = value.get_object();
  QosConfig config;
  if (const Json* enabled = object.if_contains("enable_user_qos")) {
    if (!enabled->is_bool() && !enabled->is_int64())
      refuse(where, cat("\"enable_user_qos\" is ", json_kind(*enabled), ", expected true or false"));
    config.enabled = enabled->is_bool() ? enabled->get_bool() : enabled->get_int64() != 0;
  }
  if (!config.enabled) return config;
  const Json& names = member(object, "user_groups", where);
  const Json& map = member(object, "user_group_map", where);
  if (!names.is_array())
    refuse(where, cat("\"user_groups\" is ", json_kind(names), ", expected an array of names"));
  if (!map.is_object()) refuse(where, cat("\"user_group_map\" is ", json_kind(map), ", expected an object"));
  for (const Json& name : names.get_array())
    config.groups.push_back(
        parse_group(text(name, "a name in \"user_groups\"", where), map.get_object(), where));
  if (config.groups.empty()) refuse(where, "\"user_groups\" is empty");
  for (const auto& [key, users] : map.get_object()) {
    const auto same = [&, name = std::string(key)](const QosGroup& group) { return group.name == name; };
    if (std::count_if(config.groups.begin(), config.groups.end(), same) != 1)
      refuse(where, cat("group \"", std::string(key), "\" must be in \"user_groups\" once"));
  }
  refuse_users_of_two_groups(config.groups, where);
  return config;
}

}  // namespace lmdeploy
