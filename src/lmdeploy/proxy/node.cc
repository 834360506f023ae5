#include "lmdeploy/proxy/node.h"

#include <boost/json.hpp>
#include <cmath>

#include "lmdeploy/core/error.h"

namespace lmdeploy::proxy {
namespace {

constexpr size_t kHistory = 15;

[[noreturn]] void refuse(const std::string& where, const char* key, const Json& found, const char* expected) {
  throw Error(ErrorCode::kInvalidData,
              cat(where, ": \"", key, "\" is ", json_kind(found), ", expected ", expected));
}

double number(const Json& value, const std::string& where, const char* key, const char* expected) {
  if (!value.is_number()) refuse(where, key, value, expected);
  return value.to_number<double>();
}

std::vector<std::string> strings(const Json& value, const std::string& where, const char* key) {
  if (!value.is_array()) refuse(where, key, value, "an array of strings");
  std::vector<std::string> all;
  for (const Json& item : value.get_array()) {
    if (!item.is_string()) refuse(where, key, item, "an array of strings");
    all.emplace_back(item.get_string());
  }
  return all;
}

std::deque<double> latencies(const Json& value, const std::string& where) {
  if (!value.is_array()) refuse(where, "latency", value, "an array of numbers");
  std::deque<double> all;
  for (const Json& item : value.get_array()) {
    const double seconds = number(item, where, "latency", "an array of numbers");
    if (!(seconds >= 0)) refuse(where, "latency", item, "an array of numbers that are 0 or more");
    all.push_back(seconds);
    if (all.size() > kHistory) all.pop_front();
  }
  return all;
}

/// Speeds divide.
std::optional<double> speed(const Json& value, const std::string& where) {
  if (value.is_null()) return std::nullopt;
  const double speed = number(value, where, "speed", "a number");
  if (!(speed > 0) || !std::isfinite(speed))
    throw Error(ErrorCode::kInvalidData,
                cat(where, ": \"speed\" is ", speed, ", expected a number greater than 0"));
  return speed;
}

std::string role(const Json& value, const std::string& where) {
  // Older versions write the number of the role.
  if (value.is_string() && value.get_string() == "Hybrid") return "Hybrid";
  if (value.is_int64() && value.get_int64() == 1) return "Hybrid";
  throw Error(ErrorCode::kInvalidData,
              cat(where, ": \"role\" is ", to_json_text(value),
                  "; nodes for prefill or decode alone are not supported, expected \"Hybrid\""));
}

}  // namespace

NodeStatus parse_status(const Json& value, const std::string& where) {
  if (!value.is_object())
    throw Error(ErrorCode::kInvalidData, cat(where, ": found ", json_kind(value), ", expected an object"));
  NodeStatus status;
  const JsonObject& object = value.get_object();
  if (const Json* found = object.if_contains("models")) status.models = strings(*found, where, "models");
  if (const Json* found = object.if_contains("unfinished")) number(*found, where, "unfinished", "a number");
  if (const Json* found = object.if_contains("latency")) status.latency = latencies(*found, where);
  if (const Json* found = object.if_contains("speed")) status.speed = speed(*found, where);
  if (const Json* found = object.if_contains("role")) status.role = role(*found, where);
  return status;
}

JsonObject status_json(const NodeStatus& status) {
  JsonObject object;
  JsonArray models, latency;
  for (const std::string& model : status.models) models.emplace_back(model);
  for (const double seconds : status.latency) latency.emplace_back(seconds);
  object["models"] = std::move(models);
  object["unfinished"] = status.unfinished;
  object["latency"] = std::move(latency);
  object["speed"] = status.speed ? Json(*status.speed) : Json(nullptr);
  object["role"] = status.role;
  return object;
}

std::vector<std::string> parse_model_list(const Json& value, const std::string& where) {
  const Json* data = value.is_object() ? value.get_object().if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array())
    throw Error(ErrorCode::kInvalidData, cat(where, ": no list of models (\"data\") in the answer"));
  std::vector<std::string> ids;
  for (const Json& card : data->get_array()) {
    const Json* id = card.is_object() ? card.get_object().if_contains("id") : nullptr;
    if (id == nullptr || !id->is_string())
      throw Error(ErrorCode::kInvalidData, cat(where, ": a model without \"id\""));
    ids.emplace_back(id->get_string());
  }
  return ids;
}

}  // namespace lmdeploy::proxy
