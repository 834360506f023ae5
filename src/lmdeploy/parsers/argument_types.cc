#include "lmdeploy/parsers/argument_types.h"

#include <optional>
#include <vector>

#include "lmdeploy/parsers/python_literal.h"
#include "lmdeploy/parsers/try_json.h"

namespace lmdeploy {
namespace {

constexpr size_t kMaxSchemas = 256;  // looked at for one argument; schemas may refer to each other in circles

const Json* member(const Json* value, std::string_view key) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(key) : nullptr;
}

// The schema that `schema` refers to within `root`; nullptr where it refers to nothing that is there.
const Json* find_reference(const Json& root, const Json& schema) {
  const Json* reference = member(&schema, "$ref");
  if (reference == nullptr || !reference->is_string()) return nullptr;
  const std::string_view path = reference->get_string();
  boost::system::error_code error;
  return path.starts_with("#/") ? root.find_pointer(path.substr(1), error) : nullptr;
}

// The schema itself and those it is made of: its alternatives, and what it refers to.
std::vector<const Json*> parts_of(const Json& root, const Json& schema) {
  std::vector<const Json*> parts = {&schema};
  const auto add = [&](const Json* part) {
    if (part != nullptr && parts.size() < kMaxSchemas) parts.push_back(part);
  };
  for (size_t i = 0; i < parts.size(); ++i) {
    add(find_reference(root, *parts[i]));
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const Json* list = member(parts[i], key); list != nullptr && list->is_array())
        for (const Json& one : list->get_array()) add(&one);
  }
  return parts;
}

struct AllowedTypes {
  bool text = false, null = false, other = false;

  void add_named(const Json& type) {
    if (!type.is_string()) return;
    text = text || type.get_string() == "string";
    null = null || type.get_string() == "null";
    other = other || (type.get_string() != "string" && type.get_string() != "null");
  }
  void add_of(const Json& value) {
    text = text || value.is_string();
    null = null || value.is_null();
    other = other || !(value.is_string() || value.is_null());
  }
};

AllowedTypes types_of(const Json& root, const Json& schema) {
  AllowedTypes types;
  for (const Json* part : parts_of(root, schema)) {
    if (const Json* type = member(part, "type"); type != nullptr && type->is_array())
      for (const Json& one : type->get_array()) types.add_named(one);
    else if (type != nullptr)
      types.add_named(*type);
    if (const Json* values = member(part, "enum"); values != nullptr && values->is_array())
      for (const Json& one : values->get_array()) types.add_of(one);
    if (const Json* value = member(part, "const")) types.add_of(*value);
  }
  return types;
}

std::string_view without_space(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

// Numbers keep all their digits.
std::optional<std::string> as_json(std::string_view text) {
  return try_parse_json(text) ? std::string(text) : python_literal_to_json(text);
}

}  // namespace

const Json* find_parameters(const Json& tools, std::string_view function) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools.get_array()) {
    const Json* inner = member(&tool, "function");
    const Json* found = inner != nullptr ? inner : &tool;
    const Json* name = member(found, "name");
    if (name != nullptr && name->is_string() && std::string_view(name->get_string()) == function)
      return member(found, "parameters");
  }
  return nullptr;
}

std::string typed_argument(const Json* parameters, std::string_view key, std::string_view value) {
  AllowedTypes types;
  if (const Json* schema = member(member(parameters, "properties"), key))
    types = types_of(*parameters, *schema);
  const std::string_view bare = without_space(value);
  if (types.null && (bare == "null" || bare == "None")) return "null";
  return types.other && !types.text ? json_argument(value) : to_json_text(Json(value));
}

std::string json_argument(std::string_view value) {
  std::optional<std::string> json = as_json(without_space(value));
  return json ? std::move(*json) : to_json_text(Json(value));
}

}  // namespace lmdeploy
