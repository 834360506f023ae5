// Filters on sequences: selection, mapping, order, grouping.
#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/filters.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"

namespace lmdeploy::jinja {
namespace {

class Generator final : public Object {
 public:
  Generator(const Value& over, Iterator iterator)
      : Object(over), iterator_(std::make_shared<Iterator>(std::move(iterator))) {}
  std::string_view type_name() const override { return "generator"; }
  Iterator iterate() override {  // all iterators share the one position
    return [shared = iterator_]() { return (*shared)(); };
  }

 private:
  std::shared_ptr<Iterator> iterator_;
};

constexpr std::string_view kGroupNames[] = {"grouper", "list"};

// An attribute argument: "a.b.0" or a number; nothing for none.
using Path = std::vector<Value>;
Path parse_path(const Value& attribute) {
  if (attribute.is_none()) return {};
  if (!attribute.is_text()) return {attribute};
  Path path;
  for (const std::string_view part : split_on(attribute.utf8(), ".", SIZE_MAX, false)) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    path.push_back(number ? Value(parse_int(part, 10).value_or(0)) : Value(std::string(part)));
  }
  return path;
}

Value follow(Interpreter& interpreter, Value value, const Path& path, const Value& absent = {}) {
  for (const Value& part : path) {
    value = interpreter.item(value, part);
    if (!absent.is_none() && value.is_undefined()) value = absent;
  }
  return value;
}

Value ignore_case(Interpreter& interpreter, const Value& value) {
  interpreter.budget().charge_reading(value);
  return value.is_text() ? Value(to_lower(value.utf8())) : value;
}

// The keys by which items are compared.
struct KeyMaker {
  Interpreter& interpreter;
  Path path;
  bool case_sensitive;
  Value operator()(const Value& item) const {
    const Value key = follow(interpreter, item, path);
    return case_sensitive ? key : ignore_case(interpreter, key);
  }
};

// Items with their keys, in the order of the keys; equal keys keep their order, also when reversed.
std::vector<std::pair<Value, Value>> sorted_by_key(Interpreter& interpreter, const std::vector<Value>& items,
                                                   const std::function<Value(const Value&)>& key_of,
                                                   bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) keyed.emplace_back(key_of(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, interpreter.budget())
                   : less(a.first, b.first, interpreter.budget());
  });
  return keyed;
}

std::vector<Value> second_of(const std::vector<std::pair<Value, Value>>& pairs) {
  std::vector<Value> values;
  for (const auto& pair : pairs) values.push_back(pair.second);
  return values;
}

// All items of an argument, each charged.
std::vector<Value> items_of(Interpreter& interpreter, const Value& value) {
  std::vector<Value> items = to_vector(value);
  interpreter.budget().charge(items.size());
  return items;
}

Value generator_over(std::vector<Value> items) {
  const Value list = Value::list(std::move(items));
  return make_generator(list, iterate(list));
}

Value length(Interpreter&, Args& args) {
  const std::optional<size_t> size = length_of(args[0]);
  if (!size) throw Failure(cat("object of type '", args[0].type_name(), "' has no len()"));
  return Value::size(*size);
}

Value to_list(Interpreter& interpreter, Args& args) { return Value::list(items_of(interpreter, args[0])); }

Value first(Interpreter&, Args& args) {
  const Iterator next = iterate(args[0]);
  const std::optional<Value> item = next();
  return item ? *item : Value::undefined("No first item, sequence was empty.");
}

// Python's reversed() takes sequences and dicts only.
Value last(Interpreter& interpreter, Args& args) {
  const std::optional<size_t> size = length_of(args[0]);
  if (!size) throw Failure(cat("'", args[0].type_name(), "' object is not reversible"));
  if (*size == 0) return Value::undefined("No last item, sequence was empty.");
  if (args[0].is_text()) return slice(args[0], Int{-1}, {}, {});
  return args[0].is_sequence() ? args[0].items().back() : items_of(interpreter, args[0]).back();
}

Value reverse(Interpreter& interpreter, Args& args) {
  if (args[0].is_text()) return slice(args[0], {}, {}, Int{-1});
  std::vector<Value> items = items_of(interpreter, args[0]);
  std::reverse(items.begin(), items.end());
  const Value reversed = Value::list(std::move(items));
  return length_of(args[0]) ? make_generator(reversed, iterate(reversed)) : reversed;
}

Value join(Interpreter& interpreter, Args& args) {
  const Path path = parse_path(args.get(2, {}));
  std::vector<std::string> pieces;
  for (const Value& item : items_of(interpreter, args[0]))
    pieces.push_back(to_text(follow(interpreter, item, path)));
  return Value(join_texts(pieces, to_text(args.get(1, Value("")))));
}

Value sort(Interpreter& interpreter, Args& args) {
  const bool case_sensitive = args.flag(2, false);
  std::vector<Path> paths;  // "a,b": by a, then by b
  const Value attribute = args.get(3, {});
  if (attribute.is_text())
    for (const std::string_view part : split_on(attribute.utf8(), ",", SIZE_MAX, false))
      paths.push_back(parse_path(Value(std::string(part))));
  else
    paths.push_back(parse_path(attribute));
  const auto key_of = [&](const Value& item) {
    std::vector<Value> keys;
    for (const Path& path : paths) keys.push_back(KeyMaker{interpreter, path, case_sensitive}(item));
    return Value::list(std::move(keys));
  };
  return Value::list(
      second_of(sorted_by_key(interpreter, items_of(interpreter, args[0]), key_of, args.flag(1, false))));
}

Value dict_sort(Interpreter& interpreter, Args& args) {
  if (!args[0].is_dict()) throw Failure(cat("'", args[0].type_name(), "' object has no attribute 'items'"));
  const std::string by = args.text(2, "key");
  if (by != "key" && by != "value") throw Failure("You can only sort by either \"key\" or \"value\"");
  const bool case_sensitive = args.flag(1, false);
  const auto key_of = [&](const Value& pair) {
    const Value& key = pair.items()[by == "key" ? 0 : 1];
    return case_sensitive ? key : ignore_case(interpreter, key);
  };
  std::vector<Value> pairs;
  for (const auto& [key, value] : args[0].dict().entries) pairs.push_back(Value::tuple({key, value}));
  return Value::list(second_of(sorted_by_key(interpreter, pairs, key_of, args.flag(3, false))));
}

Value group_by(Interpreter& interpreter, Args& args) {
  const Path path = parse_path(args[1]);
  const Value absent = args.get(2, {});
  const bool case_sensitive = args.flag(3, false);
  const auto real_key = [&](const Value& item) { return follow(interpreter, item, path, absent); };
  const auto key_of = [&](const Value& item) {
    return case_sensitive ? real_key(item) : ignore_case(interpreter, real_key(item));
  };
  const auto sorted = sorted_by_key(interpreter, items_of(interpreter, args[0]), key_of, /*reverse=*/false);
  std::vector<Value> groups;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    std::vector<Value> members;
    for (; end < sorted.size() && equal(sorted[end].first, sorted[begin].first, interpreter.budget()); ++end)
      members.push_back(sorted[end].second);
    if (members.empty()) members.push_back(sorted[end++].second);  // a key that does not equal itself: NaN
    const Value grouper = real_key(members[0]);
    groups.push_back(Value::tuple({grouper, Value::list(std::move(members))}, kGroupNames));
  }
  return Value::list(std::move(groups));
}

Value unique(Interpreter& interpreter, Args& args) {
  const KeyMaker key_of{interpreter, parse_path(args.get(2, {})), args.flag(1, false)};
  auto seen = std::make_shared<Dict>();
  std::vector<Value> others;  // keys that no dict can hold: lists
  std::vector<Value> kept;
  for (const Value& item : items_of(interpreter, args[0])) {
    const Value key = key_of(item);
    const bool scalar = key.is_text() || key.is_number() || key.is_none();
    require_hashable(key);
    const auto same = [&](const Value& other) { return equal(other, key, interpreter.budget()); };
    if (scalar ? seen->find(key) != nullptr : std::any_of(others.begin(), others.end(), same)) continue;
    if (scalar)
      seen->set(key, true);
    else
      others.push_back(key);
    kept.push_back(item);
  }
  return generator_over(std::move(kept));
}

template <bool kMin>
Value extreme(Interpreter& interpreter, Args& args) {
  const KeyMaker key_of{interpreter, parse_path(args.get(2, {})), args.flag(1, false)};
  std::optional<std::pair<Value, Value>> best;  // key, item
  for (const Value& item : items_of(interpreter, args[0])) {
    Value key = key_of(item);
    const bool better = !best || (kMin ? less(key, best->first, interpreter.budget())
                                       : less(best->first, key, interpreter.budget()));
    if (better) best.emplace(std::move(key), item);
  }
  return best ? best->second : Value::undefined("No aggregated item, sequence was empty.");
}

Value sum(Interpreter& interpreter, Args& args) {
  const Path path = parse_path(args.get(1, {}));
  Value total = args.get(2, Int{0});
  if (total.is_text()) throw Failure("sum() can't sum strings; use join");
  for (const Value& item : items_of(interpreter, args[0])) {
    total = arithmetic(BinaryOp::kAdd, total, follow(interpreter, item, path));
    interpreter.budget().charge_for(total);
  }
  return total;
}

Value batch(Interpreter& interpreter, Args& args) {
  const Int size = args.integer(1);
  if (size <= 0) throw Failure("batch: the size must be positive");
  std::vector<Value> batches, current;
  for (const Value& item : items_of(interpreter, args[0])) {
    if (static_cast<Int>(current.size()) == size) batches.push_back(Value::list(std::exchange(current, {})));
    current.push_back(item);
  }
  if (!current.empty()) {
    if (!args.absent_or_none(2)) {
      if (size > static_cast<Int>(kMaxItems)) throw Failure("batch: the size is too large");
      current.resize(static_cast<size_t>(size), args[2]);
    }
    batches.push_back(Value::list(std::move(current)));
  }
  return generator_over(std::move(batches));
}

Value slices(Interpreter& interpreter, Args& args) {
  const Int wanted = args.integer(1);
  if (wanted <= 0 || wanted > static_cast<Int>(kMaxItems))
    throw Failure("slice: the number must be positive");
  const std::vector<Value> items = items_of(interpreter, args[0]);
  const auto count = static_cast<size_t>(wanted);
  const size_t base = items.size() / count, longer = items.size() % count;
  std::vector<Value> out;
  auto from = items.begin();
  for (size_t i = 0; i < count; ++i) {
    const auto to = from + static_cast<std::ptrdiff_t>(base + (i < longer ? 1 : 0));
    std::vector<Value> part(from, to);
    if (!args.absent_or_none(2) && i >= longer) part.push_back(args[2]);
    out.push_back(Value::list(std::move(part)));
    from = to;
  }
  return generator_over(std::move(out));
}

Value items(Interpreter& interpreter, Args& args) {
  if (args[0].is_undefined()) return make_generator(args[0], iterate(args[0]));
  if (!args[0].is_dict()) throw Failure("Can only get item pairs from a mapping.");
  const Value view = interpreter.call(*find_method(args[0], "items"), {});
  return make_generator(view, iterate(view));
}

// The part of `arguments` from `first` on.
Arguments after(const Arguments& arguments, size_t first) {
  Arguments out = arguments;
  out.positional.erase(out.positional.begin(), out.positional.begin() + static_cast<std::ptrdiff_t>(first));
  return out;
}

// What map and select draw from: as in jinja2, anything false (none, 0) has no items.
Iterator source_of(const Value& value) { return value.truthy() ? iterate(value) : iterate(Value("")); }

Value map(Interpreter& interpreter, Args& args) {
  std::function<Value(const Value&)> convert;
  Arguments& rest = args.rest;
  if (rest.positional.empty()) {
    Value attribute, absent;
    for (const auto& [name, value] : rest.named) {
      if (name != "attribute" && name != "default")
        throw Failure(cat("Unexpected keyword argument '", name, "'"));
      (name == "attribute" ? attribute : absent) = value;
    }
    if (attribute.is_none()) throw Failure("map requires a filter argument");
    convert = [&interpreter, path = parse_path(attribute), absent](const Value& item) {
      return follow(interpreter, item, path, absent);
    };
  } else {
    convert = [&interpreter, name = to_text(rest.positional[0]), more = after(rest, 1)](const Value& item) {
      return interpreter.apply_filter(name, item, more);
    };
  }
  return make_generator(args[0],
                        [&interpreter, source = source_of(args[0]), convert]() -> std::optional<Value> {
                          const std::optional<Value> item = source();
                          if (!item) return std::nullopt;
                          interpreter.budget().charge(1);
                          return convert(*item);
                        });
}

// select, reject, selectattr and rejectattr: a test by name, or truth.
template <bool kKeep, bool kByAttribute>
Value select(Interpreter& interpreter, Args& args) {
  const Arguments& rest = args.rest;
  if (kByAttribute && rest.positional.empty()) throw Failure("Missing parameter for attribute name");
  const Path path = kByAttribute ? parse_path(rest.positional[0]) : Path();
  const size_t test_at = kByAttribute ? 1 : 0;
  const bool has_test = rest.positional.size() > test_at;
  const std::string test = has_test ? to_text(rest.positional[test_at]) : std::string();
  const Arguments more = has_test ? after(rest, test_at + 1) : Arguments();
  const auto passes = [&interpreter, path, has_test, test, more](const Value& item) {
    const Value value = follow(interpreter, item, path);
    return has_test ? interpreter.apply_test(test, value, more) : value.truthy();
  };
  return make_generator(args[0],
                        [&interpreter, source = source_of(args[0]), passes]() -> std::optional<Value> {
                          while (std::optional<Value> item = source()) {
                            interpreter.budget().charge(1);
                            if (passes(*item) == kKeep) return item;
                          }
                          return std::nullopt;
                        });
}

constexpr Builtin kSequenceFilters[] = {
    {"batch", "value linecount fill_with?", batch},
    {"count", "value", length},
    {"dictsort", "value case_sensitive? by? reverse?", dict_sort},
    {"first", "seq", first},
    {"groupby", "value attribute default? case_sensitive?", group_by},
    {"items", "value", items},
    {"join", "value d? attribute?", join},
    {"last", "seq", last},
    {"length", "value", length},
    {"list", "value", to_list},
    {"map", "value * **", map},
    {"max", "value case_sensitive? attribute?", extreme<false>},
    {"min", "value case_sensitive? attribute?", extreme<true>},
    {"reject", "value * **", select<false, false>},
    {"rejectattr", "value * **", select<false, true>},
    {"reverse", "value", reverse},
    {"select", "value * **", select<true, false>},
    {"selectattr", "value * **", select<true, true>},
    {"slice", "value slices fill_with?", slices},
    {"sort", "value reverse? case_sensitive? attribute?", sort},
    {"sum", "value attribute? start?", sum},
    {"unique", "value case_sensitive? attribute?", unique},
};

}  // namespace

Value make_generator(const Value& over, Iterator iterator) {
  return ObjectPtr(std::make_shared<Generator>(over, std::move(iterator)));
}

std::span<const Builtin> sequence_filters() { return kSequenceFilters; }

}  // namespace lmdeploy::jinja
