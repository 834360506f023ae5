#include "lmdeploy/text/grammar/response_format.h"

#include <algorithm>
#include <initializer_list>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

[[noreturn]] void refuse(std::string_view where, std::string_view found, std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument, cat(where, ": found ", found, "; expected ", expected));
}

const JsonObject& object(const Json& json, std::string_view where) {
  if (!json.is_object()) refuse(where, json_kind(json), "an object");
  return json.get_object();
}

const Json& field(const JsonObject& object, std::string_view name, std::string_view where,
                  std::string_view expected) {
  const Json* value = object.if_contains(name);
  if (value == nullptr) refuse(cat(where, ".", name), "nothing", expected);
  return *value;
}

bool flag(const JsonObject& object, std::string_view name, std::string_view where) {
  const Json* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return false;
  if (!value->is_bool()) refuse(cat(where, ".", name), json_kind(*value), "true or false");
  return value->get_bool();
}

void check_keys(const JsonObject& object, std::initializer_list<std::string_view> known,
                std::string_view where) {
  for (const auto& entry : object) {
    if (std::ranges::find(known, std::string_view(entry.key())) != known.end()) continue;
    std::string names;
    for (const std::string_view name : known) names += cat(names.empty() ? "" : ", ", name);
    refuse(where, cat("the field \"", std::string_view(entry.key()), "\""), names);
  }
}

std::string text(const Json& json, std::string_view where) {
  if (!json.is_string()) refuse(where, json_kind(json), "a string");
  return std::string(json.get_string());
}

void read_json_schema(const JsonObject& format, std::string_view where, ResponseFormat& out) {
  check_keys(format, {"type", "json_schema", "compact"}, where);
  const std::string inner_where = cat(where, ".json_schema");
  const JsonObject& inner =
      object(field(format, "json_schema", where, "an object with name and schema"), inner_where);
  check_keys(inner, {"name", "schema", "strict", "description"}, inner_where);
  if (const Json* name = inner.if_contains("name")) text(*name, cat(inner_where, ".name"));
  out.schema = field(inner, "schema", inner_where, "a JSON schema");
  if (!out.schema.is_object() && !out.schema.is_bool())
    refuse(cat(inner_where, ".schema"), json_kind(out.schema), "a JSON schema: an object, true or false");
  out.strict = flag(inner, "strict", inner_where);
  out.compact = flag(format, "compact", where);
}

void read_choice(const JsonObject& format, std::string_view where, ResponseFormat& out) {
  check_keys(format, {"type", "choice"}, where);
  const std::string inner = cat(where, ".choice");
  const Json& list = field(format, "choice", where, "a list of strings");
  if (!list.is_array() || list.get_array().empty())
    refuse(inner, list.is_array() ? "an empty list" : json_kind(list), "a list of strings");
  for (size_t i = 0; i < list.get_array().size(); ++i) {
    const std::string item = cat(inner, "[", i, "]");
    out.choices.push_back(text(list.get_array()[i], item));
    if (out.choices.back().empty()) refuse(item, "an empty string", "at least one character");
  }
}

}  // namespace

ResponseFormat read_response_format(const Json& json, std::string_view where) {
  constexpr std::string_view kTypes = "text, json_object, json_schema, regex_schema or choice";
  const JsonObject& format = object(json, where);
  const std::string type = text(field(format, "type", where, kTypes), cat(where, ".type"));
  ResponseFormat out;
  if (type == "text") {
    check_keys(format, {"type"}, where);
  } else if (type == "json_object") {
    check_keys(format, {"type", "compact"}, where);
    out.kind = ResponseFormat::Kind::kJsonObject;
    out.compact = flag(format, "compact", where);
  } else if (type == "json_schema") {
    out.kind = ResponseFormat::Kind::kJsonSchema;
    read_json_schema(format, where, out);
  } else if (type == "regex_schema") {
    check_keys(format, {"type", "regex_schema"}, where);
    out.kind = ResponseFormat::Kind::kRegex;
    out.pattern =
        text(field(format, "regex_schema", where, "a regular expression"), cat(where, ".regex_schema"));
  } else if (type == "choice") {
    out.kind = ResponseFormat::Kind::kChoice;
    read_choice(format, where, out);
  } else {
    refuse(cat(where, ".type"), cat("\"", type, "\""), kTypes);
  }
  return out;
}

}  // namespace lmdeploy
