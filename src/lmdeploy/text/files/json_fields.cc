// JsonFields.
#include "lmdeploy/text/files/json_fields.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {

JsonFields::JsonFields(const Json& value, std::string where)
    : object_(value.if_object()), where_(std::move(where)) {
  if (object_ == nullptr)
    throw Error(ErrorCode::kInvalidData, cat(where_, " is ", json_kind(value), ", expected an object"));
}

const Json* JsonFields::find(std::string_view key) const {
  const Json* value = object_->if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

const Json& JsonFields::require(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) throw Error(ErrorCode::kInvalidData, cat(where_, ": \"", key, "\" is missing"));
  return *value;
}

std::optional<bool> JsonFields::get_bool(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_bool()) fail(key, *value, "a boolean");
  return value->get_bool();
}

std::optional<std::string> JsonFields::get_string(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) fail(key, *value, "a string");
  return std::string(value->get_string());
}

std::string JsonFields::require_string(std::string_view key) const {
  const Json& value = require(key);
  if (!value.is_string()) fail(key, value, "a string");
  return std::string(value.get_string());
}

std::optional<int> JsonFields::get_count(std::string_view key, int max) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_int64() || value->get_int64() < 0 || value->get_int64() > max)
    fail(key, *value, cat("an integer from 0 to ", max));
  return static_cast<int>(value->get_int64());
}

const JsonArray& JsonFields::get_array(std::string_view key) const {
  static const JsonArray kEmpty;
  const Json* value = find(key);
  if (value == nullptr) return kEmpty;
  if (!value->is_array()) fail(key, *value, "an array");
  return value->get_array();
}

JsonFields JsonFields::child(std::string_view key) const { return {require(key), cat(where_, ": ", key)}; }

void JsonFields::fail(std::string_view key, const Json& found, std::string_view expected) const {
  std::string shown = to_json_text(found);
  if (shown.size() > 60) shown = json_kind(found);
  throw Error(ErrorCode::kInvalidData, cat(where_, ": \"", key, "\" is ", shown, ", expected ", expected));
}

}  // namespace lmdeploy
