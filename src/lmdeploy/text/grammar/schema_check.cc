// Whether a value is valid, and whether any value can be.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/shape.h"
#include "lmdeploy/text/grammar/work_limit.h"

namespace lmdeploy::grammar {
namespace {

constexpr int kDeepest = 100;

bool is_whole(const Json& number) {
  return !number.is_double() || std::floor(number.get_double()) == number.get_double();
}

unsigned type_of(const Json& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return types::kNull;
    case boost::json::kind::bool_:
      return types::kBoolean;
    case boost::json::kind::string:
      return types::kString;
    case boost::json::kind::array:
      return types::kArray;
    case boost::json::kind::object:
      return types::kObject;
    default:
      return is_whole(value) ? types::kInteger : types::kFraction;
  }
}

bool equal(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return compare(to_decimal(a), to_decimal(b)) == 0;
  if (a.is_array() && b.is_array())
    return std::ranges::equal(a.get_array(), b.get_array(),
                              [](const Json& x, const Json& y) { return equal(x, y); });
  if (a.is_object() && b.is_object()) {
    const JsonObject& other = b.get_object();
    return a.get_object().size() == other.size() &&
           std::ranges::all_of(a.get_object(), [&](const auto& entry) {
             const Json* same = other.if_contains(entry.key());
             return same != nullptr && equal(entry.value(), *same);
           });
  }
  return a == b;
}

bool is_multiple(const Json& value, const Decimal& divisor) {
  const double by = std::strtod((divisor.whole + "." + divisor.fraction + "0").c_str(), nullptr);
  const double quotient = value.to_number<double>() / by;
  return std::abs(quotient - std::round(quotient)) < 1e-9;
}

bool number_fits(const Shape& shape, const Json& value) {
  const Decimal number = to_decimal(value);
  if (shape.range.low) {
    const int order = compare(number, shape.range.low->value);
    if (order < 0 || (order == 0 && shape.range.low->open)) return false;
  }
  if (shape.range.high) {
    const int order = compare(number, shape.range.high->value);
    if (order > 0 || (order == 0 && shape.range.high->open)) return false;
  }
  return std::ranges::all_of(shape.divisors,
                             [&](const auto& divisor) { return is_multiple(value, divisor.first); });
}

bool string_fits(const Shape& shape, std::string_view value) {
  const std::u32string codes = to_codes(value);
  if (codes.size() < shape.length.min || codes.size() > shape.length.max) return false;
  return std::ranges::all_of(
      shape.patterns, [&](const StringPattern& pattern) { return pattern_text_dfa(pattern).accepts(codes); });
}

bool array_fits(const SchemaDocument& document, const Branch& branch, const Shape& shape,
                const JsonArray& value, int depth) {
  if (value.size() < shape.min_items || value.size() > shape.max_items) return false;
  for (size_t i = 0; i < value.size(); ++i)
    if (!admits(document, item_schemas(document, branch, i), value[i], depth + 1)) return false;
  return true;
}

bool object_fits(const SchemaDocument& document, const Branch& branch, const Shape& shape,
                 const JsonObject& value, int depth) {
  if (value.size() < shape.min_properties || value.size() > shape.max_properties) return false;
  for (const std::string& name : shape.required)
    if (!value.contains(name)) return false;
  const SchemaSet names = name_schemas(document, branch);
  for (const auto& entry : value) {
    if (!admits(document, names, Json(entry.key()), depth + 1)) return false;
    if (!admits(document, property_schemas(document, branch, entry.key()), entry.value(), depth + 1))
      return false;
  }
  return true;
}

bool no_string(const Shape& shape) {
  if (shape.length.min > shape.length.max) return true;
  if (shape.patterns.size() < 2) return false;
  Dfa all = any_text();
  for (const StringPattern& pattern : shape.patterns)
    all = intersect(all, pattern_text_dfa(pattern), pattern.place);
  return all.empty();
}

bool no_array(const SchemaDocument& document, const Branch& branch, const Shape& shape, int depth) {
  if (shape.min_items > shape.max_items) return true;
  const uint64_t certain = std::min<uint64_t>(shape.min_items, num_prefix_items(document, branch) + 1);
  for (size_t i = 0; i < certain; ++i)
    if (is_contradiction(document, item_schemas(document, branch, i), depth + 1)) return true;
  return false;
}

bool no_object(const SchemaDocument& document, const Branch& branch, const Shape& shape, int depth) {
  if (shape.min_properties > shape.max_properties || shape.required.size() > shape.max_properties)
    return true;
  return std::ranges::any_of(shape.required, [&](const std::string& name) {
    return is_contradiction(document, property_schemas(document, branch, name), depth + 1);
  });
}

bool is_contradictory(const SchemaDocument& document, const Branch& branch, int depth) {
  const Shape shape = read_shape(document, branch);
  if (shape.values) return admitted_values(document, branch, shape).empty();
  unsigned left = shape.allowed;
  if (shape.range.empty()) left &= ~types::kNumber;
  if ((left & types::kString) != 0 && no_string(shape)) left &= ~types::kString;
  if ((left & types::kArray) != 0 && no_array(document, branch, shape, depth)) left &= ~types::kArray;
  if ((left & types::kObject) != 0 && no_object(document, branch, shape, depth)) left &= ~types::kObject;
  return left == 0;
}

/// Whether every enum and const of the branch has the value; `source` is one that is known to.
bool is_listed(const Branch& branch, const Json& value, const Json* source) {
  for (const JsonObject* part : branch) {
    const Json* constant = part->if_contains("const");
    if (constant != nullptr && constant != source && !equal(*constant, value)) return false;
    const Json* list = part->if_contains("enum");
    if (list == nullptr || list == source) continue;
    WorkLimit::spend(list->get_array().size());
    if (std::ranges::none_of(list->get_array(), [&](const Json& one) { return equal(one, value); }))
      return false;
  }
  return true;
}

bool fits(const SchemaDocument& document, const Branch& branch, const Shape& shape, const Json& value,
          const Json* source, int depth) {
  WorkLimit::spend(1);
  if ((shape.allowed & type_of(value)) == 0 || !is_listed(branch, value, source)) return false;
  if (value.is_number()) return number_fits(shape, value);
  if (value.is_string()) return string_fits(shape, value.get_string());
  if (value.is_array()) return array_fits(document, branch, shape, value.get_array(), depth);
  if (value.is_object()) return object_fits(document, branch, shape, value.get_object(), depth);
  return true;
}

}  // namespace

bool admits(const SchemaDocument& document, const Branch& branch, const Json& value, int depth) {
  return fits(document, branch, read_shape(document, branch), value, nullptr, depth);
}

std::vector<const Json*> admitted_values(const SchemaDocument& document, const Branch& branch,
                                         const Shape& shape) {
  std::vector<const Json*> admitted;
  for (const Json* value : *shape.values)
    if (fits(document, branch, shape, *value, shape.values_source, 0)) admitted.push_back(value);
  return admitted;
}

bool admits(const SchemaDocument& document, const SchemaSet& set, const Json& value, int depth) {
  if (depth > kDeepest)
    document.fail(set.empty() ? &document.root() : set[0], "", "values nested too deeply",
                  cat("at most ", kDeepest, " levels"));
  return std::ranges::any_of(document.branches(set),
                             [&](const Branch& branch) { return admits(document, branch, value, depth); });
}

bool is_contradiction(const SchemaDocument& document, const SchemaSet& set, int depth) {
  constexpr int kFarEnough = 4;
  if (depth > kFarEnough) return false;
  return std::ranges::all_of(document.branches(set),
                             [&](const Branch& branch) { return is_contradictory(document, branch, depth); });
}

void check_one_of(const SchemaDocument& document, const JsonObject& part) {
  const Json* members = part.if_contains("oneOf");
  if (members == nullptr) return;
  const JsonArray& list = members->get_array();
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t k = i + 1; k < list.size(); ++k) {
      if (is_contradiction(document, {&list[i], &list[k]})) continue;
      document.fail(&part, "oneOf", cat("members ", i, " and ", k, ", which may both hold for one value"),
                    "members that exclude each other, or anyOf");
    }
}

}  // namespace lmdeploy::grammar
