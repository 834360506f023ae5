#include "lmdeploy/parsers/argument_types.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

const Json* member(const Json* value, std::string_view key) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(key) : nullptr;
}

// The schema of an argument; nullptr where the tools don't say.
const Json* find_schema(const Json& tools, std::string_view function, std::string_view key) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools.get_array()) {
    const Json* inner = member(&tool, "function");
    const Json* found = inner != nullptr ? inner : &tool;
    const Json* name = member(found, "name");
    if (name != nullptr && name->is_string() && std::string_view(name->get_string()) == function)
      return member(member(member(found, "parameters"), "properties"), key);
  }
  return nullptr;
}

void add_types(const Json* type, std::vector<std::string_view>& types) {
  if (type == nullptr) return;
  if (type->is_string()) types.emplace_back(type->get_string());
  if (!type->is_array()) return;
  for (const Json& one : type->get_array())
    if (one.is_string()) types.emplace_back(one.get_string());
}

// Types that the schema allows, its own and those of its alternatives.
std::vector<std::string_view> types_of(const Json* schema) {
  std::vector<std::string_view> types;
  add_types(member(schema, "type"), types);
  for (const char* alternatives : {"anyOf", "oneOf"})
    if (const Json* list = member(schema, alternatives); list != nullptr && list->is_array())
      for (const Json& one : list->get_array()) add_types(member(&one, "type"), types);
  return types;
}

bool contains(const std::vector<std::string_view>& types, std::string_view type) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::string_view without_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

std::optional<std::string> as_json(std::string_view text) {
  for (const auto& [python, json] : {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}})
    if (text == python) return json;
  try {
    parse_json(text, "argument");
    return std::string(text);
  } catch (const Error&) {  // text after all
    return std::nullopt;
  }
}

}  // namespace

std::string argument_json(const Json& tools, std::string_view function, std::string_view key,
                          std::string_view value) {
  const std::vector<std::string_view> types = types_of(find_schema(tools, function, key));
  const std::string_view bare = without_space(value);
  const bool is_null = (bare == "null" || bare == "None") && contains(types, "null");
  const bool is_text = types.empty() || contains(types, "string");
  if (is_null) return "null";
  if (!is_text)
    if (const auto json = as_json(bare)) return *json;
  return to_json_text(Json(value));
}

}  // namespace lmdeploy
