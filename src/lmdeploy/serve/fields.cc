#include "lmdeploy/serve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/serve/api_error.h"

namespace lmdeploy {
namespace {

std::string expected(const Field& field) {
  switch (field.type) {
    case FieldType::kBool:
      return "true or false";
    case FieldType::kInteger:
      return "an integer";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kString:
      return "a string";
    case FieldType::kObject:
      return "an object";
    case FieldType::kArray:
      return "an array";
    case FieldType::kStringOrArray:
      return "a string or an array of strings";
    case FieldType::kTextsOrFalse:
      return "a string, an array of strings, or false";
    case FieldType::kIntegerArray:
      return "an array of integers";
    case FieldType::kObjectArray:
      return "an array of objects";
    case FieldType::kNumberMap:
      return "an object whose values are numbers";
    case FieldType::kTextOrObject:
      return "a string or an object";
    case FieldType::kTextOrMessages:
      return "a string or an array of objects";
    case FieldType::kTextOrIds:
      return "a string, an array of strings, or arrays of token ids";
    case FieldType::kAny: {
      std::string description = field.description;
      if (!description.empty()) description[0] = static_cast<char>(std::tolower(description[0]));
      return description;
    }
  }
  return "";
}

bool all_of(const Json& array, bool (*is)(const Json&)) {
  return std::all_of(array.as_array().begin(), array.as_array().end(), is);
}
bool is_integer(const Json& value) { return value.is_int64() || value.is_uint64(); }
bool is_whole(const Json& value) {
  return is_integer(value) || (value.is_double() && std::floor(value.get_double()) == value.get_double() &&
                               std::abs(value.get_double()) < 9e15);
}
bool is_object_array(const Json& value) {
  return value.is_array() && all_of(value, [](const Json& item) { return item.is_object(); });
}
bool is_number_map(const Json& value) {
  if (!value.is_object()) return false;
  for (const auto& entry : value.get_object())
    if (!entry.value().is_number()) return false;
  return true;
}
bool is_id_array(const Json& value) { return value.is_array() && all_of(value, is_integer); }

bool fits(const Json& value, FieldType type) {
  const auto is_text = [](const Json& item) { return item.is_string(); };
  switch (type) {
    case FieldType::kBool:
      return value.is_bool();
    case FieldType::kInteger:
      return is_whole(value);
    case FieldType::kNumber:
      return value.is_number();
    case FieldType::kString:
      return value.is_string();
    case FieldType::kObject:
      return value.is_object();
    case FieldType::kArray:
      return value.is_array();
    case FieldType::kStringOrArray:
      return value.is_string() || (value.is_array() && all_of(value, is_text));
    case FieldType::kTextsOrFalse:
      return fits(value, FieldType::kStringOrArray) || (value.is_bool() && !value.get_bool());
    case FieldType::kIntegerArray:
      return is_id_array(value);
    case FieldType::kObjectArray:
      return is_object_array(value);
    case FieldType::kNumberMap:
      return is_number_map(value);
    case FieldType::kTextOrObject:
      return value.is_string() || value.is_object();
    case FieldType::kTextOrMessages:
      return value.is_string() || is_object_array(value);
    case FieldType::kTextOrIds:
      return value.is_string() || is_id_array(value) ||
             (value.is_array() && (all_of(value, is_text) || all_of(value, is_id_array)));
    case FieldType::kAny:
      return true;
  }
  return false;
}

/// As people write it: the shortest text that reads back as this number.
std::string number_text(double number) { return fmt::format("{}", number); }

std::string range_text(const Field& field) {
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  const std::string min = number_text(field.min), max = number_text(field.max);
  if (low && high) return cat("in ", field.above_min ? "(" : "[", min, ", ", max, "]");
  return low ? cat(field.above_min ? "above " : "at least ", min) : cat("at most ", max);
}

std::string shown(const Json& value) {
  const std::string text = value.is_double() ? number_text(value.get_double()) : to_json_text(value);
  return text.size() <= 80 ? text : text.substr(0, 60) + "...";
}

/// What a scalar is and says; of an array or object what it is.
std::string found_text(const Json& value) {
  const bool scalar = !value.is_array() && !value.is_object() && !value.is_null();
  return cat(json_kind(value), scalar ? " " + shown(value) : "");
}

/// An item at fault inside a value.
struct Misfit {
  std::string place;  // "[0]"
  const Json* found;
  const char* expected;
};

/// The first item that is not as all have to be.
std::optional<Misfit> item_misfit(const Json& array, bool (*is)(const Json&), const char* expected) {
  const JsonArray& items = array.get_array();
  for (size_t i = 0; i < items.size(); ++i)
    if (!is(items[i])) return Misfit{cat("[", i, "]"), &items[i], expected};
  return std::nullopt;
}

/// Of a list of texts, of ids, or of lists of ids: the first item says which it is.
std::optional<Misfit> prompt_misfit(const Json& array) {
  const JsonArray& items = array.get_array();
  if (items.empty()) return std::nullopt;
  const Json& first = items[0];
  if (first.is_string())
    return item_misfit(
        array, [](const Json& item) { return item.is_string(); }, "a string, as before it");
  if (is_integer(first)) return item_misfit(array, is_integer, "a token id, as before it");
  if (!first.is_array()) return Misfit{"[0]", &first, "a string, a token id or an array of token ids"};
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_array())
      return Misfit{cat("[", i, "]"), &items[i], "an array of token ids, as before it"};
    std::optional<Misfit> inner = item_misfit(items[i], is_integer, "a token id");
    if (!inner) continue;
    inner->place = cat("[", i, "]", inner->place);
    return inner;
  }
  return std::nullopt;
}

std::optional<Misfit> inner_misfit(const Json& value, FieldType type) {
  if (type == FieldType::kNumberMap && value.is_object())
    for (const auto& entry : value.get_object())
      if (!entry.value().is_number()) return Misfit{cat("[", entry.key(), "]"), &entry.value(), "a number"};
  if (!value.is_array()) return std::nullopt;
  switch (type) {
    case FieldType::kStringOrArray:
    case FieldType::kTextsOrFalse:
      return item_misfit(
          value, [](const Json& item) { return item.is_string(); }, "a string");
    case FieldType::kIntegerArray:
      return item_misfit(value, is_integer, "an integer");
    case FieldType::kObjectArray:
    case FieldType::kTextOrMessages:
      return item_misfit(
          value, [](const Json& item) { return item.is_object(); }, "an object");
    case FieldType::kTextOrIds:
      return prompt_misfit(value);
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_type(const Json& value, const Field& field, const std::string& name) {
  if (const std::optional<Misfit> inner = inner_misfit(value, field.type)) {
    const std::string where = name + inner->place;
    refuse_field(where, cat(where, ": found ", found_text(*inner->found), "; expected ", inner->expected));
  }
  std::string range;
  if (field.type == FieldType::kInteger && value.is_double() &&
      std::floor(value.get_double()) == value.get_double())
    range = std::isfinite(field.min) || std::isfinite(field.max)
                ? " " + range_text(field)
                : cat(" from ", std::numeric_limits<int64_t>::min(), " to ",
                      std::numeric_limits<uint64_t>::max());
  refuse_field(name, cat(name, ": found ", found_text(value), "; expected ", expected(field), range));
}

void check_inside(const Json& value, const Field& field, const std::string& name) {
  if (field.of == nullptr) return;
  if (value.is_object()) check_fields(value.get_object(), field.of(), name + ".");
  if (!value.is_array()) return;
  for (size_t i = 0; i < value.get_array().size(); ++i)
    if (const JsonObject* object = value.get_array()[i].if_object())
      check_fields(*object, field.of(), cat(name, "[", i, "]."));
}

void check_value(const Json& value, const Field& field, const std::string& name) {
  if (!fits(value, field.type)) refuse_type(value, field, name);
  if (value.is_number()) {
    const double number = value.to_number<double>();
    const bool below = field.above_min ? number <= field.min : number < field.min;
    if (below || number > field.max)
      refuse_field(name, cat("The ", name, " ", shown(value), " must be ", range_text(field), "."));
  }
  if (value.is_string() && !field.choices.empty() &&
      std::find(field.choices.begin(), field.choices.end(), std::string_view(value.get_string())) ==
          field.choices.end()) {
    std::string list;
    for (const std::string_view choice : field.choices) list += cat(list.empty() ? "" : ", ", choice);
    refuse_field(name, cat(name, ": found ", shown(value), "; expected one of ", list));
  }
  check_inside(value, field, name);
}

void check_content_type(const http::Request& request) {
  const std::string* given = request.headers.find("Content-Type");
  if (given == nullptr) return;
  std::string_view type(*given);
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  if (http::equals_ignoring_case(type, "application/json") || type.ends_with("+json")) return;
  throw ApiError({415, cat("Content-Type: found ", *given, "; expected application/json"), {}, {}});
}

JsonObject type_schema(const Field& field) {
  const auto array_of = [](JsonObject items) {
    return JsonObject{{"type", "array"}, {"items", std::move(items)}};
  };
  const JsonObject text{{"type", "string"}}, integer{{"type", "integer"}},
      object = field.of == nullptr ? JsonObject{{"type", "object"}} : json_schema_of(field.of());
  switch (field.type) {
    case FieldType::kBool:
      return {{"type", "boolean"}};
    case FieldType::kInteger:
      return integer;
    case FieldType::kNumber:
      return {{"type", "number"}};
    case FieldType::kString:
      return text;
    case FieldType::kObject:
      return object;
    case FieldType::kObjectArray:
      return array_of(object);
    case FieldType::kNumberMap:
      return {{"type", "object"}, {"additionalProperties", JsonObject{{"type", "number"}}}};
    case FieldType::kArray:
      return array_of({});
    case FieldType::kStringOrArray:
      return {{"anyOf", JsonArray{text, array_of(text)}}};
    case FieldType::kTextsOrFalse:
      return {{"anyOf", JsonArray{text, array_of(text), JsonObject{{"const", false}}}}};
    case FieldType::kIntegerArray:
      return array_of(integer);
    case FieldType::kTextOrObject:
      return {{"anyOf", JsonArray{text, object}}};
    case FieldType::kTextOrMessages:
      return {{"anyOf", JsonArray{text, array_of(object)}}};
    case FieldType::kTextOrIds:
      return {{"anyOf", JsonArray{text, array_of(text), array_of(integer), array_of(array_of(integer))}}};
    case FieldType::kAny:
      return {};
  }
  return {};
}

JsonObject schema_of(const Field& field) {
  JsonObject schema = type_schema(field);
  if (std::isfinite(field.min)) schema[field.above_min ? "exclusiveMinimum" : "minimum"] = field.min;
  if (std::isfinite(field.max)) schema["maximum"] = field.max;
  if (!field.choices.empty()) {
    JsonArray choices;
    for (const std::string_view choice : field.choices) choices.emplace_back(choice);
    schema["enum"] = std::move(choices);
  }
  if (!field.required && !schema.empty()) {
    JsonObject optional{{"anyOf", JsonArray{std::move(schema), JsonObject{{"type", "null"}}}}};
    schema = std::move(optional);
    schema["default"] = parse_json(field.fallback, field.name);
  }
  schema["description"] = field.description;
  return schema;
}

}  // namespace

Fields operator+(Fields a, const Fields& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

void check_fields(const JsonObject& object, const Fields& fields, const std::string& where) {
  for (const Field& field : fields) {
    const std::string name = where + field.name;
    const Json* value = object.if_contains(field.name);
    const bool absent = value == nullptr || value->is_null();
    if (absent && field.required)
      refuse_field(name, cat(name, ": the field is required; expected ", expected(field)));
    if (!absent) check_value(*value, field, name);
  }
}

Body::Body(const http::Request& request, const Fields& fields) {
  check_content_type(request);
  Json json = parse_json(request.body, "request body");
  if (!json.is_object())
    throw ApiError({400, cat("request body: found ", json_kind(json), "; expected a JSON object"), {}, {}});
  object_ = std::move(json.get_object());
  check_fields(object_, fields);
}

const Json* Body::find(std::string_view name) const {
  const Json* value = object_.if_contains(name);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Body::flag(std::string_view name, bool fallback) const {
  const Json* value = find(name);
  return value == nullptr ? fallback : value->as_bool();
}

int64_t Body::integer(std::string_view name, int64_t fallback) const {
  return integer(name).value_or(fallback);
}

std::optional<int64_t> Body::integer(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_int64()) return value->get_int64();
  if (value->is_double()) return static_cast<int64_t>(value->get_double());
  return std::numeric_limits<int64_t>::max();  // beyond 2^63
}

double Body::number(std::string_view name, double fallback) const {
  const Json* value = find(name);
  return value == nullptr ? fallback : value->to_number<double>();
}

std::string Body::text(std::string_view name, std::string fallback) const {
  const Json* value = find(name);
  return value == nullptr ? fallback : std::string(value->as_string());
}

std::vector<std::string> Body::texts(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr || value->is_bool()) return {};
  if (value->is_string()) return {std::string(value->get_string())};
  std::vector<std::string> texts;
  for (const Json& item : value->as_array()) texts.emplace_back(item.as_string());
  return texts;
}

std::vector<int> Body::ids(std::string_view name) const {
  const Json* value = find(name);
  return value == nullptr ? std::vector<int>() : read_ids(*value, std::string(name));
}

std::string required_text(const JsonObject& object, const char* name, const std::string& where) {
  const Json* value = object.if_contains(name);
  if (value == nullptr || !value->is_string())
    refuse_field(where + name, cat(where, name, ": found ", value == nullptr ? "nothing" : found_text(*value),
                                   "; expected a string"));
  return std::string(value->get_string());
}

std::string required_name(const JsonObject& object, const std::string& where) {
  std::string name = required_text(object, "name", where);
  if (name.empty())
    refuse_field(where + "name", cat(where, "name: the text is empty; expected a function's name"));
  return name;
}

bool flag_of(const JsonObject& object, const char* name, const std::string& where) {
  const Json* value = object.if_contains(name);
  if (value == nullptr || value->is_null()) return false;
  if (!value->is_bool()) refuse_field(where + name, cat(where, name, ": expected true or false"));
  return value->get_bool();
}

std::vector<int> read_ids(const Json& array, const std::string& param) {
  std::vector<int> ids;
  ids.reserve(array.as_array().size());
  for (const Json& item : array.get_array()) {
    const bool fits_int =
        item.is_int64() && item.get_int64() >= 0 && item.get_int64() <= std::numeric_limits<int>::max();
    if (!fits_int)
      refuse_field(param, cat(param, "[", ids.size(), "]: found ", shown(item), "; expected a token id"));
    ids.push_back(static_cast<int>(item.get_int64()));
  }
  return ids;
}

JsonObject json_schema_of(const Fields& fields) {
  JsonObject properties;
  JsonArray required;
  for (const Field& field : fields) {
    properties[field.name] = schema_of(field);
    if (field.required) required.emplace_back(field.name);
  }
  JsonObject schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

}  // namespace lmdeploy
