#include "lmdeploy/text/grammar/schema_document.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_map>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/formats.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kMostBranches = 500;

// They describe, and never decide whether a value is valid.
constexpr std::string_view kAnnotations[] = {"$schema",
                                             "$id",
                                             "$anchor",
                                             "$comment",
                                             "$defs",
                                             "definitions",
                                             "title",
                                             "description",
                                             "default",
                                             "examples",
                                             "example",
                                             "deprecated",
                                             "readOnly",
                                             "writeOnly",
                                             "contentEncoding",
                                             "contentMediaType",
                                             "$vocabulary",
                                             "discriminator",
                                             "xml",
                                             "externalDocs",
                                             "id"};
constexpr std::string_view kActing[] = {"type",
                                        "enum",
                                        "const",
                                        "nullable",
                                        "$ref",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "properties",
                                        "required",
                                        "additionalProperties",
                                        "patternProperties",
                                        "propertyNames",
                                        "minProperties",
                                        "maxProperties",
                                        "unevaluatedProperties",
                                        "items",
                                        "prefixItems",
                                        "additionalItems",
                                        "minItems",
                                        "maxItems",
                                        "minLength",
                                        "maxLength",
                                        "pattern",
                                        "format",
                                        "minimum",
                                        "maximum",
                                        "exclusiveMinimum",
                                        "exclusiveMaximum",
                                        "multipleOf",
                                        "uniqueItems"};
constexpr std::string_view kRefused[] = {"if",
                                         "then",
                                         "else",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "unevaluatedItems",
                                         "contentSchema",
                                         "$dynamicRef",
                                         "$recursiveRef"};

bool has(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

bool acts(const JsonObject& object) {
  return std::ranges::any_of(object, [](const auto& entry) { return !has(kAnnotations, entry.key()); });
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f'); };
  for (size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '%' && i + 2 < text.size() && is_hex(text[i + 1]) && is_hex(text[i + 2]);
    if (!escaped) {
      out.push_back(text[i]);
      continue;
    }
    out.push_back(static_cast<char>(digit(text[i + 1]) * 16 + digit(text[i + 2])));
    i += 2;
  }
  return out;
}

// The schema of that $anchor, wherever it stands.
const Json* find_anchor(const Json& json, std::string_view name) {
  if (const auto* array = json.if_array()) {
    for (const Json& item : *array)
      if (const Json* found = find_anchor(item, name)) return found;
  }
  if (const auto* object = json.if_object()) {
    const Json* anchor = object->if_contains("$anchor");
    if (anchor != nullptr && anchor->is_string() && std::string_view(anchor->get_string()) == name)
      return &json;
    for (const auto& entry : *object)
      if (const Json* found = find_anchor(entry.value(), name)) return found;
  }
  return nullptr;
}

using Places = std::unordered_map<const void*, std::string>;

void note_places(const Json& json, const std::string& path, Places& places) {
  places[&json] = path;
  if (const auto* array = json.if_array()) {
    for (size_t i = 0; i < array->size(); ++i) note_places((*array)[i], cat(path, "/", i), places);
  }
  if (const auto* object = json.if_object()) {
    places[object] = path;
    for (const auto& entry : *object)
      note_places(entry.value(), cat(path, "/", escape_pointer_token(entry.key())), places);
  }
}

}  // namespace

std::string escape_pointer_token(std::string_view token) {
  std::string out;
  for (const char c : token) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out.push_back(c);
  }
  return out;
}

const Json* find_by_pointer(const Json& root, std::string_view pointer) {
  boost::system::error_code error;
  const Json* found = root.find_pointer({pointer.data(), pointer.size()}, error);
  return error ? nullptr : found;
}

SchemaDocument::SchemaDocument(const Json& root, std::string_view where, bool strict)
    : root_(root), where_(where), strict_(strict) {}

std::string SchemaDocument::place(const void* value) const {
  if (places_.empty()) note_places(root_, "", places_);
  const auto known = places_.find(value);
  return cat(where_, "#", known == places_.end() ? "" : known->second);
}

void SchemaDocument::fail(const void* value, std::string_view keyword, std::string_view found,
                          std::string_view expected) const {
  throw Error(ErrorCode::kInvalidArgument, cat(place(value), keyword.empty() ? "" : "/", keyword, ": found ",
                                               found, "; expected ", expected));
}

void SchemaDocument::check_finite(const Json& value) const {
  if (const double* number = value.if_double(); number != nullptr && !std::isfinite(*number))
    fail(&value, "",
         std::isnan(*number) ? "NaN"
         : *number > 0       ? "infinity"
                             : "-infinity",
         "a number that JSON can write");
  if (const JsonArray* array = value.if_array())
    for (const Json& item : *array) check_finite(item);
  if (const JsonObject* object = value.if_object())
    for (const auto& entry : *object) check_finite(entry.value());
}

void SchemaDocument::add(SchemaSet& set, const Json& schema) const {
  if (schema.is_object()) {
    if (!acts(schema.get_object())) return;
  } else if (!schema.is_bool()) {
    fail(&schema, "", json_kind(schema), "a schema: an object, true or false");
  } else if (schema.get_bool()) {
    return;
  }
  if (std::ranges::find(set, &schema) == set.end()) set.push_back(&schema);
}

const Json& SchemaDocument::target(const JsonObject& object) const {
  const Json& ref = object.at("$ref");
  if (!ref.is_string()) fail(&object, "$ref", json_kind(ref), "a string");
  const std::string text(ref.get_string());
  if (!text.starts_with('#'))
    fail(&object, "$ref", cat("\"", text, "\""),
         "a reference within the schema (\"#...\"): nothing is fetched");
  const std::string path = percent_decoded(std::string_view(text).substr(1));
  const Json* found =
      path.empty() || path.starts_with('/') ? find_by_pointer(root_, path) : find_anchor(root_, path);
  if (found == nullptr) fail(&object, "$ref", cat("\"", text, "\""), "a place that the schema has");
  return *found;
}

const JsonArray& SchemaDocument::alternatives(const JsonObject& object, std::string_view keyword) const {
  const Json& list = object.at(keyword);
  if (!list.is_array()) fail(&object, keyword, json_kind(list), "a list of schemas");
  if (list.get_array().empty()) fail(&object, keyword, "an empty list", "at least one schema");
  return list.get_array();
}

struct SchemaDocument::Step {
  const Json* schema = nullptr;
  size_t parent = 0;  // index into `seen` of the schema that asks for this one; its own index: nobody does
};

/// What is still to be looked at on the way to one branch.
struct SchemaDocument::Expansion {
  struct Choice {
    const JsonArray* alternatives = nullptr;  // one of them has to hold
    size_t parent = 0;
  };
  std::vector<Step> pending, seen;
  std::vector<Choice> choices;
  Branch branch;
  size_t* steps = nullptr;  // of all branches together
};

// Whether `schema` has been looked at; one that leads back to itself before any value has been read means
// nothing.
bool SchemaDocument::is_known(const Expansion& expansion, const Step& step) const {
  const auto is_it = [&](const Step& other) { return other.schema == step.schema; };
  if (std::ranges::none_of(expansion.seen, is_it)) return false;
  for (size_t i = step.parent; i < expansion.seen.size(); i = expansion.seen[i].parent) {
    if (is_it(expansion.seen[i]))
      fail(step.schema, "", "a schema that is defined by itself", "one that says something");
    if (expansion.seen[i].parent == i) break;
  }
  return true;
}

// False: `step.schema` can never hold.
bool SchemaDocument::expand_one(Expansion& expansion, Step step) const {
  constexpr size_t kMostSchemas = 1000, kMostSteps = 100'000;
  const Json& schema = *step.schema;
  if (schema.is_bool()) return schema.get_bool();
  if (!schema.is_object()) fail(&schema, "", json_kind(schema), "a schema: an object, true or false");
  WorkLimit::spend(10 + expansion.seen.size());
  if (is_known(expansion, step)) return true;
  const size_t self = expansion.seen.size();
  if (self >= kMostSchemas || ++*expansion.steps > kMostSteps)
    fail(&schema, "", "too many schemas that are to hold together", "fewer allOf, anyOf, oneOf and $ref");
  if (step.parent == SIZE_MAX) step.parent = self;
  expansion.seen.push_back(step);
  const JsonObject& object = schema.get_object();
  if (!acts(object)) return true;
  expansion.branch.push_back(&object);
  if (object.contains("$ref")) expansion.pending.push_back({&target(object), self});
  if (object.contains("allOf"))
    for (const Json& part : alternatives(object, "allOf")) expansion.pending.push_back({&part, self});
  for (const std::string_view keyword : {"anyOf", "oneOf"})
    if (object.contains(keyword)) expansion.choices.push_back({&alternatives(object, keyword), self});
  return true;
}

void SchemaDocument::expand(Expansion& expansion, std::vector<Branch>& out) const {
  for (size_t i = 0; i < expansion.pending.size(); ++i)
    if (!expand_one(expansion, expansion.pending[i])) return;
  expansion.pending.clear();
  if (expansion.choices.empty()) {
    if (out.size() >= kMostBranches)
      fail(&root_, "",
           cat("more than ", kMostBranches, " combinations of anyOf, oneOf and allOf in one place"),
           "fewer alternatives");
    out.push_back(std::move(expansion.branch));
    return;
  }
  const Expansion::Choice choice = expansion.choices.back();
  expansion.choices.pop_back();
  for (const Json& alternative : *choice.alternatives) {
    Expansion with = expansion;
    with.pending.push_back({&alternative, choice.parent});
    expand(with, out);
  }
}

std::vector<Branch> SchemaDocument::branches(const SchemaSet& set) const {
  size_t steps = 0;
  Expansion expansion;
  expansion.steps = &steps;
  for (const Json* schema : set) expansion.pending.push_back({schema, SIZE_MAX});
  std::vector<Branch> out;
  expand(expansion, out);
  return out;
}

void SchemaDocument::check_keywords(const JsonObject& object, std::vector<std::string>& warnings) const {
  const auto warn = [&](std::string_view keyword, std::string_view what) {
    if (strict_) fail(&object, keyword, what, "only keywords that act, since the schema is strict");
    warnings.push_back(cat(place(&object), "/", escape_pointer_token(keyword), ": ", what, " has no effect"));
  };
  for (const auto& entry : object) {
    const std::string_view keyword = entry.key();
    if (has(kRefused, keyword)) {
      fail(&object, keyword, "a keyword that is not supported",
           "a schema without it: answers could violate it");
    } else if (keyword == "uniqueItems" && entry.value() == Json(true)) {
      const Json* most = object.if_contains("maxItems");
      if (most == nullptr || (*most != Json(0) && *most != Json(1)))
        fail(&object, keyword, "a keyword that is not supported",
             "a schema without it: answers could violate it");
    } else if (keyword == "format" && entry.value().is_string() &&
               !format_pattern(std::string_view(entry.value().get_string()))) {
      warn(keyword,
           cat("the unknown format ", to_json_text(entry.value()), " (known: ", format_names(), ")"));
    } else if (!has(kActing, keyword) && !has(kAnnotations, keyword)) {
      warn(keyword, "an unknown keyword");
    }
  }
}

}  // namespace lmdeploy::grammar
