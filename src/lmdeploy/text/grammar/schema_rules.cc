#include "lmdeploy/text/grammar/schema_rules.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/grammar/object_rule.h"
#include "lmdeploy/text/grammar/shape.h"

namespace lmdeploy::grammar {
namespace {

uint32_t repetition_limit(uint64_t limit) {
  return limit >= Repetition::kNoLimit ? Repetition::kNoLimit : static_cast<uint32_t>(limit);
}

std::string number_text(const Json& number) {
  if (!number.is_double()) return to_json_text(number);
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, number.get_double()).ptr};
}

/// Makes the rule of each set of schemas once; rules that are asked for are filled in one after the other.
class SchemaRules {
 public:
  SchemaRules(GrammarBuilder& builder, const SchemaDocument& document, bool compact, SchemaNotes& notes)
      : builder_(builder), document_(document), blanks_(builder.blanks(compact)), notes_(notes) {}

  NodeId build() {
    SchemaSet root;
    document_.add(root, document_.root());
    const NodeId start = rule(root);
    while (!pending_.empty()) {
      const auto [set, node] = *pending_.front();
      pending_.pop_front();
      fill(set, node);
    }
    return start;
  }

 private:
  NodeId rule(const SchemaSet& set) {
    const auto [known, is_new] = rules_.try_emplace(set, 0);
    if (is_new) {
      known->second = builder_.add();
      pending_.push_back(&*known);
    }
    return known->second;
  }

  void fill(const SchemaSet& set, NodeId start) {
    for (const Branch& branch : document_.branches(set)) {
      for (const JsonObject* part : branch) {
        if (!checked_.insert(part).second) continue;
        document_.check_keywords(*part, notes_.warnings);
        check_one_of(document_, *part);
      }
      fill_branch(branch, start);
    }
  }

  void fill_branch(const Branch& branch, NodeId start) {
    const Shape shape = read_shape(document_, branch);
    const NodeId end = builder_.add_end();
    if (shape.values) return add_values(admitted_values(document_, branch, shape), start, end);
    unsigned allowed = shape.allowed;
    const bool says_type = shape.has_type || shape.mentioned == 0;
    if (!says_type) allowed &= shape.mentioned;  // {"properties": ...} is about objects
    if ((allowed & types::kNull) != 0) builder_.jump(builder_.literal(start, "null"), end);
    if ((allowed & types::kBoolean) != 0) builder_.one_of(start, {"true", "false"}, end);
    if ((allowed & types::kNumber) != 0) add_number(branch, shape, allowed, start, end);
    if ((allowed & types::kString) != 0) add_string(branch, shape, start, end);
    if ((allowed & types::kArray) != 0) add_array(branch, shape, start, end);
    if ((allowed & types::kObject) != 0) add_object(branch, shape, start, end);
  }

  // Texts of scalars share what they begin with; containers are written with blanks between their parts.
  void add_values(const std::vector<const Json*>& values, NodeId start, NodeId end) {
    std::vector<std::string> texts;
    for (const Json* value : values) {
      if (value->is_array() || value->is_object())
        builder_.jump(add_value(start, *value), end);
      else
        texts.push_back(value->is_number() ? number_text(*value) : to_json_text(*value));
    }
    builder_.one_of(start, texts, end);
  }

  NodeId add_value(NodeId at, const Json& value) {
    if (const auto* array = value.if_array()) {
      at = builder_.call(builder_.literal(at, "["), blanks_);
      for (size_t i = 0; i < array->size(); ++i) at = add_value(i == 0 ? at : comma(at), (*array)[i]);
      return builder_.literal(array->empty() ? at : builder_.call(at, blanks_), "]");
    }
    if (const auto* object = value.if_object()) {
      at = builder_.call(builder_.literal(at, "{"), blanks_);
      bool first = true;
      for (const auto& entry : *object) {
        at = colon(builder_.literal(std::exchange(first, false) ? at : comma(at), json_text(entry.key())));
        at = add_value(at, entry.value());
      }
      return builder_.literal(first ? at : builder_.call(at, blanks_), "}");
    }
    return builder_.literal(at, value.is_number() ? number_text(value) : to_json_text(value));
  }

  NodeId comma(NodeId at) {
    return builder_.call(builder_.literal(builder_.call(at, blanks_), ","), blanks_);
  }
  NodeId colon(NodeId at) {
    return builder_.call(builder_.literal(builder_.call(at, blanks_), ":"), blanks_);
  }

  void add_number(const Branch& branch, const Shape& shape, unsigned allowed, NodeId start, NodeId end) {
    if ((allowed & types::kInteger) == 0)
      document_.fail(branch.front(), "not", "numbers that are no integers", "integers or all numbers");
    NumberRange range = shape.range;
    range.integer = (allowed & types::kFraction) == 0;
    if (!shape.divisors.empty()) range.divisor = common_divisor(shape);
    if (range.empty()) return;
    if (!range.bounded()) {
      builder_.call(start, range.integer ? builder_.json_integer() : builder_.json_number(), end);
      return;
    }
    const void* place =
        shape.divisors.empty() ? static_cast<const void*>(branch.front()) : shape.divisors[0].second;
    const std::optional<NodeId> rule = add_number_range(builder_, range, document_.place(place));
    if (rule) return builder_.call(start, *rule, end);
    note_limit(branch.front(),
               cat("bounds", range.divisor ? " and a multipleOf" : "", " that leave no ",
                   range.integer ? "integer" : "number", " of at most ",
                   range.integer ? kMostIntegerDigits : kMostDigits, " digits"),
               "some such number");
  }

  // No value is left because of a limit of ours, not of the schema.
  void note_limit(const void* place, std::string_view found, std::string_view expected) {
    if (notes_.limit.empty())
      notes_.limit = cat(document_.place(place), ": found ", found, "; expected ", expected);
  }

  // Whether `min` is a count that no answer has room for.
  bool is_too_many(const Branch& branch, std::string_view keyword, uint64_t min) {
    if (min < Repetition::kNoLimit) return false;
    note_limit(branch.front(), cat(keyword, " ", min), cat("less than ", Repetition::kNoLimit));
    return true;
  }

  Decimal common_divisor(const Shape& shape) const {
    const Decimal& first = shape.divisors[0].first;
    for (const auto& [divisor, part] : shape.divisors)
      if (compare(divisor, first) != 0)
        document_.fail(part, "multipleOf", "another multipleOf that has to hold as well", "one of them");
    return first;
  }

  void add_string(const Branch& branch, const Shape& shape, NodeId start, NodeId end) {
    if (!shape.patterns.empty()) {
      const NodeId inside = builder_.literal(start, "\"");
      const NodeId closing = builder_.add();
      builder_.byte(closing, '"', end);
      builder_.dfa(inside, string_dfa(shape), Spelling::kJsonString, closing, /*sealed=*/true);
      return;
    }
    const bool any_length = shape.length.min == 0 && shape.length.max == LengthRange::kNoLimit;
    if (any_length) return builder_.call(start, builder_.json_string(), end);
    if (shape.length.min > shape.length.max || is_too_many(branch, "minLength", shape.length.min)) return;
    Repetition characters;
    characters.body = builder_.json_character();
    characters.min = static_cast<uint32_t>(shape.length.min);
    characters.max = repetition_limit(shape.length.max);
    characters.of_characters = true;
    const NodeId inside = builder_.call(builder_.literal(start, "\""), builder_.repetition(characters));
    builder_.byte(inside, '"', end);
  }

  const Dfa& pattern_dfa(const StringPattern& pattern) {
    const auto key = std::pair{pattern.pattern, pattern.anchoring == Anchoring::kWhole};
    const auto known = dfas_.find(key);
    if (known != dfas_.end()) return known->second;
    return dfas_[key] = pattern_text_dfa(pattern);
  }

  Dfa string_dfa(const Shape& shape) {
    Dfa dfa = pattern_dfa(shape.patterns[0]);
    for (size_t i = 1; i < shape.patterns.size(); ++i)
      dfa = intersect(dfa, pattern_dfa(shape.patterns[i]), shape.patterns[i].place);
    const bool any_length = shape.length.min == 0 && shape.length.max == LengthRange::kNoLimit;
    return any_length ? dfa : with_length(dfa, shape.length, shape.patterns[0].place);
  }

  void add_array(const Branch& branch, const Shape& shape, NodeId start, NodeId end) {
    const uint64_t min = shape.min_items, max = shape.max_items;
    if (min > max || is_too_many(branch, "minItems", min)) return;
    const NodeId closing = builder_.add();
    builder_.byte(closing, ']', end);
    const NodeId open = builder_.call(builder_.literal(start, "["), blanks_);
    if (min == 0) builder_.jump(open, closing);
    const size_t prefix = num_prefix_items(document_, branch);
    NodeId at = open;  // after `count` items
    for (size_t count = 0; count < std::max<size_t>(prefix, 1); ++count) {
      if (count >= max) return;
      at = builder_.call(count == 0 ? at : comma(at), rule(item_schemas(document_, branch, count)));
      if (count + 1 >= min) builder_.call(at, blanks_, closing);
    }
    const uint64_t done = std::max<size_t>(prefix, 1);
    if (done >= max) return;
    Repetition tail;  // further items, at least one
    const NodeId item = builder_.add();
    tail.body = item;
    builder_.call(comma(item), rule(item_schemas(document_, branch, done)), builder_.add_end());
    tail.min = static_cast<uint32_t>(std::max(min, done + 1) - done);
    tail.max = repetition_limit(max == LengthRange::kNoLimit ? max : max - done);
    builder_.call(builder_.call(at, builder_.repetition(tail)), blanks_, closing);
  }

  void add_object(const Branch& branch, const Shape& shape, NodeId start, NodeId end) {
    const SchemaSet names = name_schemas(document_, branch);
    ObjectMembers members;
    for (const std::string& name : shape.properties) {
      const bool fits = admits(document_, names, Json(boost::json::string(name)));
      const NodeId value = fits ? rule(property_schemas(document_, branch, name)) : builder_.add();
      const bool required = shape.required.contains(name);
      members.declared.push_back({json_text(name), value, required});
    }
    members.other = other_member(branch, shape, names);
    members.min = shape.min_properties;
    members.max = shape.max_properties;
    if (members.other && members.min > members.declared.size() + 1)
      document_.fail(branch.front(), "minProperties", cat(members.min),
                     "at most one more than there are declared properties: other keys may come twice");
    lmdeploy::grammar::add_object(builder_, members, blanks_, start, end);
  }

  // A key that is not declared, and its value; nothing when there may be none.
  std::optional<NodeId> other_member(const Branch& branch, const Shape& shape, const SchemaSet& names) {
    const std::vector<std::string> patterns = open_patterns(document_, branch);
    constexpr size_t kMostPatterns = 4;
    if (patterns.size() > kMostPatterns)
      document_.fail(branch.front(), "patternProperties", cat(patterns.size(), " expressions"),
                     cat("at most ", kMostPatterns));
    const NodeId member = builder_.add(), end = builder_.add_end();
    bool any = false;
    for (unsigned which = 0; which < 1u << patterns.size(); ++which) {
      std::vector<std::pair<std::string, bool>> matched;
      for (size_t i = 0; i < patterns.size(); ++i) matched.emplace_back(patterns[i], (which >> i & 1) != 0);
      const SchemaSet values = open_schemas(document_, branch, matched);
      if (std::ranges::any_of(values, [](const Json* schema) { return schema->is_bool(); }))
        continue;  // false
      any = true;
      const NodeId key = add_key(branch, shape, names, matched, member);
      builder_.call(colon(key), rule(values), end);
    }
    return any ? std::optional(member) : std::nullopt;
  }

  NodeId add_key(const Branch& branch, const Shape& shape, const SchemaSet& names,
                 const std::vector<std::pair<std::string, bool>>& patterns, NodeId from) {
    if (patterns.empty() && names.empty() && shape.properties.empty())
      return builder_.call(from, builder_.json_string());
    const std::string place = document_.place(branch.front());
    Dfa dfa = complement(texts(shape.properties));
    for (const auto& [pattern, matches] : patterns) {
      const Dfa& own = pattern_dfa({pattern, Anchoring::kAnywhere, cat(place, "/patternProperties")});
      dfa = intersect(dfa, matches ? own : complement(own), place);
    }
    if (!names.empty()) dfa = intersect(dfa, names_dfa(branch, names), place);
    const NodeId closing = builder_.add();
    builder_.dfa(builder_.literal(from, "\""), dfa, Spelling::kJsonString, closing, /*sealed=*/true);
    return builder_.literal(closing, "\"");
  }

  Dfa names_dfa(const Branch& branch, const SchemaSet& names) {
    const std::vector<Branch> branches = document_.branches(names);
    if (branches.size() != 1)
      document_.fail(branch.front(), "propertyNames", cat(branches.size(), " alternatives"),
                     "one schema of strings");
    const Shape shape = read_shape(document_, branches[0]);
    if (shape.values) {
      std::vector<std::string> keys;
      for (const Json* value : admitted_values(document_, branches[0], shape))
        if (value->is_string()) keys.emplace_back(value->get_string());
      return texts(keys);
    }
    if (!shape.patterns.empty()) return string_dfa(shape);
    return with_length(any_text(), shape.length, cat(document_.place(branch.front()), "/propertyNames"));
  }

  GrammarBuilder& builder_;
  const SchemaDocument& document_;
  const NodeId blanks_;
  SchemaNotes& notes_;
  std::map<SchemaSet, NodeId> rules_;
  std::deque<const std::pair<const SchemaSet, NodeId>*> pending_;
  std::set<const JsonObject*> checked_;
  std::map<std::pair<std::string, bool>, Dfa> dfas_;
};

}  // namespace

NodeId add_schema(GrammarBuilder& builder, const Json& schema, SchemaOptions options, std::string_view where,
                  SchemaNotes& notes) {
  const SchemaDocument document(schema, where, options.strict);
  return SchemaRules(builder, document, options.compact, notes).build();
}

}  // namespace lmdeploy::grammar
