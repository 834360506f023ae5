// The fields of a JSON body as data: what is checked here is what openapi.json says.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/http/message.h"

namespace lmdeploy {

struct Field;
using Fields = std::vector<Field>;

enum class FieldType {
  kBool,
  kInteger,
  kNumber,
  kString,
  kObject,
  kArray,
  kStringOrArray,  // the array's items are texts
  kTextsOrFalse,   // the same, or false: none
  kIntegerArray,   // token ids
  kObjectArray,
  kNumberMap,  // an object whose values are numbers
  kTextOrObject,
  kTextOrMessages,  // a text, or an array of objects
  kTextOrIds,       // a text, an array of texts, an array of ids, or an array of arrays of ids
  kAny,
};

struct Field {
  const char* name;
  FieldType type;
  const char* description;
  bool required = false;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                      // min itself is not allowed
  const char* fallback = "null";               // JSON text of the default
  std::vector<std::string_view> choices = {};  // of a text
  const Fields& (*of)() = nullptr;             // what is in the object, or in each object of the array
};

/// Fields of several tables, as one.
Fields operator+(Fields a, const Fields& b);

/// A body whose known fields have the types and ranges of its table; unknown ones are ignored. A field that
/// is null counts as absent. Throws ApiError: 415 for another content type, 400 for what is no JSON object,
/// and naming the first field that is wrong in the order of the table.
class Body {
 public:
  Body(const http::Request& request, const Fields& fields);

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// nullptr: absent or null.
  const Json* find(std::string_view name) const;

  bool flag(std::string_view name, bool fallback) const;
  int64_t integer(std::string_view name, int64_t fallback) const;
  std::optional<int64_t> integer(std::string_view name) const;
  double number(std::string_view name, double fallback) const;
  std::string text(std::string_view name, std::string fallback = {}) const;
  /// Of a text, or an array of texts.
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<int> ids(std::string_view name) const;
  const JsonObject& object() const { return object_; }

 private:
  JsonObject object_;
};

/// Checks one object with a table, wherever it stands: `where` ("messages[0].") begins the names in messages.
void check_fields(const JsonObject& object, const Fields& fields, const std::string& where = {});
/// The text under `name`. Throws ApiError naming it after `where`.
std::string required_text(const JsonObject& object, const char* name, const std::string& where);
/// The name of a function: a text that is not empty.
std::string required_name(const JsonObject& object, const std::string& where);
/// A flag of an object inside a body; false when it is absent.
bool flag_of(const JsonObject& object, const char* name, const std::string& where);
/// An array of integers that fit an int. Throws ApiError naming `param`.
std::vector<int> read_ids(const Json& array, const std::string& param);

/// {"type": "object", "properties": ..., "required": ...}
JsonObject json_schema_of(const Fields& fields);

}  // namespace lmdeploy
