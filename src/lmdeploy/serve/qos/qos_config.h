// Groups of users and their quotas: the file of --qos-config-path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy {

struct QosUser {
  std::string id;
  double quota = 0;  // its share of the group, in parts of the group's sum
};

struct QosGroup {
  std::string name;
  std::vector<QosUser> users;
};

struct QosConfig {
  bool enabled = true;           // false: requests run in the order they came
  std::vector<QosGroup> groups;  // highest priority first
};

/// Throws Error(kInvalidData) naming the file (`where`), the group and the key.
QosConfig parse_qos_config(const Json& value, const std::string& where);

}  // namespace lmdeploy
