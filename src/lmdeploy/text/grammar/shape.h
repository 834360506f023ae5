// What the keywords of one branch ask for, taken together.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lmdeploy/text/grammar/decimal.h"
#include "lmdeploy/text/grammar/dfa.h"
#include "lmdeploy/text/grammar/schema_document.h"

namespace lmdeploy::grammar {

namespace types {
constexpr unsigned kNull = 1, kBoolean = 2, kInteger = 4, kFraction = 8, kString = 16, kArray = 32,
                   kObject = 64;
constexpr unsigned kNumber = kInteger | kFraction, kAll = 127;
}  // namespace types

struct StringPattern {
  std::string pattern;
  Anchoring anchoring = Anchoring::kAnywhere;
  std::string place;
};

struct Shape {
  unsigned allowed = types::kAll;
  unsigned mentioned = 0;                          // the types that its keywords are about
  bool has_type = false;                           // some part says which types it allows
  std::optional<std::vector<const Json*>> values;  // of the first enum or const
  const Json* values_source = nullptr;             // that enum or const
  NumberRange range;
  std::vector<std::pair<Decimal, const JsonObject*>> divisors;
  LengthRange length;
  std::vector<StringPattern> patterns;
  uint64_t min_items = 0, max_items = LengthRange::kNoLimit;
  uint64_t min_properties = 0, max_properties = LengthRange::kNoLimit;
  std::vector<std::string>
      properties;  // declared names in the order in which they stand, then other required ones
  std::set<std::string, std::less<>> required;
};

Shape read_shape(const SchemaDocument& document, const Branch& branch);

/// The schemas that a property of that name has to follow.
SchemaSet property_schemas(const SchemaDocument& document, const Branch& branch, std::string_view name);
/// The schemas of an array's item `index`.
SchemaSet item_schemas(const SchemaDocument& document, const Branch& branch, size_t index);
/// How many items have schemas of their own.
size_t num_prefix_items(const SchemaDocument& document, const Branch& branch);
/// Keys that no `properties` has and of whose patterns exactly these match: what their values have to follow.
/// `patterns`: as open_patterns() gives them, with whether each matches.
SchemaSet open_schemas(const SchemaDocument& document, const Branch& branch,
                       const std::vector<std::pair<std::string, bool>>& patterns);
/// All expressions of patternProperties, each once.
std::vector<std::string> open_patterns(const SchemaDocument& document, const Branch& branch);
/// What all keys have to follow (propertyNames).
SchemaSet name_schemas(const SchemaDocument& document, const Branch& branch);

/// The texts that a pattern admits; those of formats are made once.
Dfa pattern_text_dfa(const StringPattern& pattern);

/// Whether a value follows all of a branch, or of a set.
bool admits(const SchemaDocument& document, const Branch& branch, const Json& value, int depth = 0);
bool admits(const SchemaDocument& document, const SchemaSet& set, const Json& value, int depth = 0);
/// Those of `shape.values` that follow all of the branch whose shape it is.
std::vector<const Json*> admitted_values(const SchemaDocument& document, const Branch& branch,
                                         const Shape& shape);
/// Whether no value can follow all of `set`; false also when that is hard to say.
bool is_contradiction(const SchemaDocument& document, const SchemaSet& set, int depth = 0);
/// Refuses a oneOf two of whose members may hold at once.
void check_one_of(const SchemaDocument& document, const JsonObject& part);

/// `"a"`: the JSON text of a string.
std::string json_text(std::string_view text);

}  // namespace lmdeploy::grammar
