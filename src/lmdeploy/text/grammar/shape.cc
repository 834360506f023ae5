// Reading the keywords.
#include "lmdeploy/text/grammar/shape.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/formats.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

unsigned type_bits(std::string_view name) {
  if (name == "null") return types::kNull;
  if (name == "boolean") return types::kBoolean;
  if (name == "integer") return types::kInteger;
  if (name == "number") return types::kNumber;
  if (name == "string") return types::kString;
  if (name == "array") return types::kArray;
  if (name == "object") return types::kObject;
  return 0;
}

/// Folds one part after the other.
class ShapeReader {
 public:
  ShapeReader(const SchemaDocument& document, Shape& shape) : document_(document), shape_(shape) {}

  void read(const JsonObject& object) {
    object_ = &object;
    WorkLimit::spend(20);
    read_types();
    read_values();
    read_numbers();
    read_strings();
    read_arrays();
    read_objects();
  }
  void finish() {
    for (const std::string& name : shape_.required) add_property(name);
  }

 private:
  const Json* find(std::string_view keyword) const { return object_->if_contains(keyword); }
  [[noreturn]] void fail(std::string_view keyword, std::string_view found, std::string_view expected) const {
    document_.fail(object_, keyword, found, expected);
  }
  void mention(unsigned type) { shape_.mentioned |= type; }

  unsigned one_type(const Json& name) const {
    const unsigned bits = name.is_string() ? type_bits(name.get_string()) : 0;
    if (bits == 0)
      fail("type", to_json_text(name),
           "null, boolean, integer, number, string, array or object, or a list of these");
    return bits;
  }

  void read_types() {
    const Json* type = find("type");
    if (type == nullptr) return;
    unsigned bits = 0;
    if (const auto* list = type->if_array()) {
      if (list->empty()) fail("type", "an empty list", "at least one type");
      for (const Json& name : *list) bits |= one_type(name);
    } else {
      bits = one_type(*type);
    }
    const Json* nullable = find("nullable");
    if (nullable != nullptr && *nullable == Json(true)) bits |= types::kNull;
    shape_.allowed &= bits;
    shape_.has_type = true;
  }

  void read_values() {
    const Json* list = find("enum");
    if (list != nullptr) {
      if (!list->is_array()) fail("enum", json_kind(*list), "a list of values");
      if (list->get_array().empty()) fail("enum", "an empty list", "at least one value");
    }
    const Json* constant = find("const");
    if (list == nullptr && constant == nullptr) return;
    for (const Json* stated : {list, constant})
      if (stated != nullptr) document_.check_finite(*stated);
    if (shape_.values) return;  // the others are filtered when it is known which parts there are
    shape_.values.emplace();
    shape_.values_source = constant != nullptr ? constant : list;
    if (constant != nullptr)
      shape_.values->push_back(constant);
    else
      for (const Json& value : list->get_array()) shape_.values->push_back(&value);
  }

  const Json* number(std::string_view keyword) {
    const Json* value = find(keyword);
    if (value == nullptr) return nullptr;
    if (!value->is_number()) fail(keyword, json_kind(*value), "a number");
    document_.check_finite(*value);
    mention(types::kNumber);
    return value;
  }

  void raise_low(Bound bound) {
    const int order = shape_.range.low ? compare(bound.value, shape_.range.low->value) : 1;
    if (order > 0 || (order == 0 && bound.open)) shape_.range.low = std::move(bound);
  }
  void lower_high(Bound bound) {
    const int order = shape_.range.high ? compare(bound.value, shape_.range.high->value) : -1;
    if (order < 0 || (order == 0 && bound.open)) shape_.range.high = std::move(bound);
  }

  // Draft 4 writes `exclusiveMinimum: true` beside the bound.
  bool is_old_exclusive(std::string_view keyword) const {
    const Json* value = find(keyword);
    return value != nullptr && value->is_bool();
  }
  bool old_exclusive(std::string_view keyword) const {
    return is_old_exclusive(keyword) && find(keyword)->get_bool();
  }

  void read_numbers() {
    if (const Json* low = number("minimum")) raise_low({to_decimal(*low), old_exclusive("exclusiveMinimum")});
    if (const Json* high = number("maximum"))
      lower_high({to_decimal(*high), old_exclusive("exclusiveMaximum")});
    if (!is_old_exclusive("exclusiveMinimum"))
      if (const Json* low = number("exclusiveMinimum")) raise_low({to_decimal(*low), /*open=*/true});
    if (!is_old_exclusive("exclusiveMaximum"))
      if (const Json* high = number("exclusiveMaximum")) lower_high({to_decimal(*high), /*open=*/true});
    if (const Json* divisor = number("multipleOf")) {
      const Decimal value = to_decimal(*divisor);
      if (value.negative || value.is_zero()) fail("multipleOf", to_json_text(*divisor), "a number above 0");
      shape_.divisors.emplace_back(value, object_);
    }
  }

  std::optional<uint64_t> count(std::string_view keyword, unsigned type) {
    const Json* value = find(keyword);
    if (value == nullptr) return std::nullopt;
    mention(type);
    if (value->is_int64() && value->get_int64() >= 0) return static_cast<uint64_t>(value->get_int64());
    if (value->is_uint64()) return value->get_uint64();
    const bool whole = value->is_double() && value->get_double() >= 0 && value->get_double() < 1e15 &&
                       std::floor(value->get_double()) == value->get_double();
    if (!whole) fail(keyword, to_json_text(*value), "a whole number, 0 or more");
    return static_cast<uint64_t>(value->get_double());
  }

  void read_limits(std::string_view least, std::string_view most, unsigned type, uint64_t& min,
                   uint64_t& max) {
    if (const auto low = count(least, type)) min = std::max(min, *low);
    if (const auto high = count(most, type)) max = std::min(max, *high);
  }

  void read_strings() {
    read_limits("minLength", "maxLength", types::kString, shape_.length.min, shape_.length.max);
    if (const Json* pattern = find("pattern")) {
      if (!pattern->is_string()) fail("pattern", json_kind(*pattern), "a string");
      mention(types::kString);
      shape_.patterns.push_back({std::string(pattern->get_string()), Anchoring::kAnywhere,
                                 cat(document_.place(object_), "/pattern")});
    }
    const Json* format = find("format");
    if (format == nullptr) return;
    if (!format->is_string()) fail("format", json_kind(*format), "a string");
    if (auto pattern = format_pattern(std::string_view(format->get_string())))
      shape_.patterns.push_back(
          {std::move(*pattern), Anchoring::kWhole, cat(document_.place(object_), "/format")});
  }

  void read_arrays() {
    for (const std::string_view keyword : {"items", "prefixItems"})
      if (find(keyword) != nullptr) mention(types::kArray);
    read_limits("minItems", "maxItems", types::kArray, shape_.min_items, shape_.max_items);
  }

  void add_property(std::string_view name) {
    WorkLimit::spend(5);
    if (properties_.emplace(name).second) shape_.properties.emplace_back(name);
  }

  void read_objects() {
    for (const std::string_view keyword :
         {"properties", "required", "additionalProperties", "patternProperties", "propertyNames"})
      if (find(keyword) != nullptr) mention(types::kObject);
    read_limits("minProperties", "maxProperties", types::kObject, shape_.min_properties,
                shape_.max_properties);
    if (const Json* properties = find("properties")) {
      if (!properties->is_object()) fail("properties", json_kind(*properties), "an object");
      for (const auto& entry : properties->get_object()) add_property(entry.key());
    }
    const Json* required = find("required");
    if (required == nullptr || required->is_bool()) return;  // draft 3 has booleans here
    if (!required->is_array()) fail("required", json_kind(*required), "a list of names");
    for (const Json& name : required->get_array()) {
      if (!name.is_string()) fail("required", json_kind(name), "a list of names");
      WorkLimit::spend(5);
      shape_.required.emplace(std::string_view(name.get_string()));
    }
  }

  const SchemaDocument& document_;
  Shape& shape_;
  const JsonObject* object_ = nullptr;
  std::set<std::string, std::less<>> properties_;
};

// `not` says which types are out; anything else in it is not supported.
void read_not(const SchemaDocument& document, const JsonObject& object, Shape& shape) {
  const Json* inner = object.if_contains("not");
  if (inner == nullptr) return;
  const JsonObject* schema = inner->if_object();
  const Json* type = schema != nullptr && schema->size() == 1 ? schema->if_contains("type") : nullptr;
  if (type == nullptr)
    document.fail(&object, "not", "a schema that is not a type alone",
                  "{\"type\": ...}: nothing else is supported in it");
  Shape excluded;
  ShapeReader(document, excluded).read(*schema);
  shape.allowed &= ~excluded.allowed;
}

const Json* object_keyword(const SchemaDocument& document, const JsonObject& part, std::string_view keyword) {
  const Json* value = part.if_contains(keyword);
  if (value != nullptr && !value->is_object()) document.fail(&part, keyword, json_kind(*value), "an object");
  return value;
}

const JsonArray* prefix_of(const SchemaDocument& document, const JsonObject& part) {
  const Json* prefix = part.if_contains("prefixItems");
  if (prefix != nullptr && !prefix->is_array())
    document.fail(&part, "prefixItems", json_kind(*prefix), "a list of schemas");
  if (prefix != nullptr) return &prefix->get_array();
  const Json* items = part.if_contains("items");  // a list in drafts before 2020-12
  return items != nullptr && items->is_array() ? &items->get_array() : nullptr;
}

const Json* rest_of(const JsonObject& part) {
  const Json* items = part.if_contains("items");
  return items != nullptr && items->is_array() ? part.if_contains("additionalItems") : items;
}

// It looks through $ref, allOf, anyOf and oneOf beside it, which a branch has followed.
const Json* unevaluated(const SchemaDocument& document, const Branch& branch, const JsonObject& part) {
  const Json* schema = part.if_contains("unevaluatedProperties");
  if (schema == nullptr) return nullptr;
  if (*schema == Json(true)) return nullptr;
  if (*schema != Json(false) || branch.front() != &part)
    document.fail(&part, "unevaluatedProperties", "a schema, or a place within another one",
                  "false, beside all that it is about: nothing else is supported");
  return schema;
}

bool matches(const SchemaDocument& document, const JsonObject& part, const std::string& pattern,
             std::string_view name) {
  const std::string place = cat(document.place(&part), "/patternProperties/", escape_pointer_token(pattern));
  return regex_dfa(pattern, Anchoring::kAnywhere, place).accepts(to_codes(name));
}

void add_closing(const SchemaDocument& document, const Branch& branch, bool evaluated, SchemaSet& set) {
  if (evaluated) return;
  static const Json kNever = false;
  bool says = false;
  for (const JsonObject* part : branch) {
    if (const Json* schema = unevaluated(document, branch, *part)) document.add(set, *schema);
    says = says || part->contains("additionalProperties") || part->contains("unevaluatedProperties");
  }
  if (document.strict() && !says) document.add(set, kNever);
}

}  // namespace

std::string json_text(std::string_view text) { return to_json_text(Json(boost::json::string(text))); }

Dfa pattern_text_dfa(const StringPattern& pattern) {
  if (pattern.anchoring == Anchoring::kAnywhere)  // a user's
    return regex_dfa(pattern.pattern, pattern.anchoring, pattern.place);
  static std::mutex mutex;
  static std::map<std::string, Dfa> formats;
  const std::lock_guard lock(mutex);
  const auto [known, is_new] = formats.try_emplace(pattern.pattern);
  if (is_new) known->second = regex_dfa(pattern.pattern, pattern.anchoring, pattern.place);
  return known->second;
}

Shape read_shape(const SchemaDocument& document, const Branch& branch) {
  Shape shape;
  ShapeReader reader(document, shape);
  for (const JsonObject* part : branch) reader.read(*part);
  for (const JsonObject* part : branch) read_not(document, *part, shape);
  reader.finish();
  return shape;
}

SchemaSet property_schemas(const SchemaDocument& document, const Branch& branch, std::string_view name) {
  SchemaSet set;
  bool evaluated = false;
  for (const JsonObject* part : branch) {
    bool known = false;
    if (const Json* properties = object_keyword(document, *part, "properties"))
      if (const Json* schema = properties->get_object().if_contains(name)) {
        document.add(set, *schema);
        known = true;
      }
    if (const Json* patterns = object_keyword(document, *part, "patternProperties"))
      for (const auto& entry : patterns->get_object()) {
        if (!matches(document, *part, std::string(entry.key()), name)) continue;
        document.add(set, entry.value());
        known = true;
      }
    if (const Json* others = part->if_contains("additionalProperties"); others != nullptr && !known) {
      document.add(set, *others);
      known = true;
    }
    evaluated = evaluated || known;
  }
  add_closing(document, branch, evaluated, set);
  return set;
}

std::vector<std::string> open_patterns(const SchemaDocument& document, const Branch& branch) {
  std::vector<std::string> out;
  for (const JsonObject* part : branch)
    if (const Json* patterns = object_keyword(document, *part, "patternProperties"))
      for (const auto& entry : patterns->get_object())
        if (std::ranges::find(out, std::string_view(entry.key())) == out.end()) out.emplace_back(entry.key());
  return out;
}

SchemaSet open_schemas(const SchemaDocument& document, const Branch& branch,
                       const std::vector<std::pair<std::string, bool>>& patterns) {
  SchemaSet set;
  bool evaluated = false;
  for (const JsonObject* part : branch) {
    bool known = false;
    if (const Json* own = object_keyword(document, *part, "patternProperties"))
      for (const auto& [pattern, applies] : patterns) {
        const Json* schema = own->get_object().if_contains(pattern);
        if (schema == nullptr || !applies) continue;
        document.add(set, *schema);
        known = true;
      }
    if (const Json* others = part->if_contains("additionalProperties"); others != nullptr && !known) {
      document.add(set, *others);
      known = true;
    }
    evaluated = evaluated || known;
  }
  add_closing(document, branch, evaluated, set);
  return set;
}

SchemaSet name_schemas(const SchemaDocument& document, const Branch& branch) {
  SchemaSet set;
  for (const JsonObject* part : branch)
    if (const Json* names = part->if_contains("propertyNames")) document.add(set, *names);
  return set;
}

size_t num_prefix_items(const SchemaDocument& document, const Branch& branch) {
  size_t most = 0;
  for (const JsonObject* part : branch)
    if (const JsonArray* prefix = prefix_of(document, *part)) most = std::max(most, prefix->size());
  return most;
}

SchemaSet item_schemas(const SchemaDocument& document, const Branch& branch, size_t index) {
  SchemaSet set;
  for (const JsonObject* part : branch) {
    const JsonArray* prefix = prefix_of(document, *part);
    if (prefix != nullptr && index < prefix->size()) {
      document.add(set, (*prefix)[index]);
    } else if (const Json* rest = rest_of(*part)) {
      document.add(set, *rest);
    }
  }
  return set;
}

}  // namespace lmdeploy::grammar
