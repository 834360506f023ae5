#include "lmdeploy/jinja/value.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

uint32_t checked_depth(uint32_t inner) {
  if (inner >= kMaxValueDepth) throw Failure(cat("values nested deeper than ", kMaxValueDepth));
  return inner + 1;
}

Value make_list(std::vector<Value> items, bool is_tuple, std::span<const std::string_view> names = {}) {
  if (items.size() > kMaxItems) throw Failure(cat("a list of more than ", kMaxItems, " items"));
  uint32_t inner = 0;
  for (const Value& item : items) inner = std::max(inner, item.depth());
  auto list = std::make_shared<List>();
  *list = {std::move(items), is_tuple, names, checked_depth(inner)};
  return ListPtr(std::move(list));
}

// One spelling for all keys that Python holds equal: 1, 1.0 and True.
std::string key_spelling(const Value& key) {
  if (key.is_integral()) return to_string(key.as_int());
  if (key.is_none()) return "none";
  const double number = key.as_double();
  const bool whole = std::abs(number) < 0x1p100 && number == std::floor(number);
  return whole ? to_string(static_cast<Int>(number)) : cat("float ", std::bit_cast<uint64_t>(number));
}

bool is_scalar_key(const Value& key) { return key.is_number() || key.is_none(); }

template <typename Next>
Iterator count_up(size_t size, Next next) {
  return [i = size_t{0}, size, next]() mutable -> std::optional<Value> {
    if (i == size) return std::nullopt;
    return next(i++);
  };
}

Iterator iterate_text(TextPtr text) {
  return [text = std::move(text), at = size_t{0}]() mutable -> std::optional<Value> {
    if (at == text->utf8.size()) return std::nullopt;
    const size_t bytes = decode_at(text->utf8, at).bytes;
    at += bytes;
    return Value(text->utf8.substr(at - bytes, bytes));  // iteration drops the markup, an index keeps it
  };
}

}  // namespace

std::string to_string(Int value) {
  if (value == 0) return "0";
  std::string digits;
  const bool negative = value < 0;
  for (; value != 0; value /= 10)
    digits += static_cast<char>('0' + static_cast<int>(negative ? -(value % 10) : value % 10));
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

Object::Object(const Value& inner) : depth_(checked_depth(inner.depth())) {}

void Object::print(std::string& out, int) const { out += cat("<", type_name(), " object>"); }

std::optional<Value> Object::attribute(Interpreter&, std::string_view) { return std::nullopt; }

Value Object::call(Interpreter&, Arguments) {
  throw Failure(cat("'", type_name(), "' object is not callable"));
}

Value Object::item(size_t) const { throw Failure(cat("'", type_name(), "' object is not subscriptable")); }

Value::Value(std::string utf8, bool markup) {
  if (utf8.size() > kMaxTextBytes) throw Failure(cat("text of more than ", kMaxTextBytes >> 20, " MiB"));
  auto text = std::make_shared<Text>();
  text->length = count_code_points(utf8);
  text->utf8 = std::move(utf8);
  text->markup = markup;
  data_ = TextPtr(std::move(text));
}

Value Value::list(std::vector<Value> items) { return make_list(std::move(items), /*is_tuple=*/false); }
Value Value::tuple(std::vector<Value> items, std::span<const std::string_view> names) {
  return make_list(std::move(items), /*is_tuple=*/true, names);
}
Value Value::undefined(std::string message) {
  return Undefined{std::make_shared<const std::string>(std::move(message))};
}

bool Value::is_list() const { return is_sequence() && !std::get<ListPtr>(data_)->is_tuple; }
bool Value::is_tuple() const { return is_sequence() && std::get<ListPtr>(data_)->is_tuple; }
const std::vector<Value>& Value::items() const { return std::get<ListPtr>(data_)->items; }
const Value* Value::named_item(std::string_view name) const {
  const List& list = *std::get<ListPtr>(data_);
  const auto found = std::find(list.names.begin(), list.names.end(), name);
  return found == list.names.end() ? nullptr : &list.items[static_cast<size_t>(found - list.names.begin())];
}

bool Value::same_object(const Value& other) const {
  const auto address = [](const Value& value) -> const void* {
    if (value.is_text()) return &value.text();
    if (value.is_sequence()) return std::get<ListPtr>(value.data_).get();
    if (value.is_dict()) return &value.dict();
    return value.is_object() ? &value.object() : nullptr;
  };
  return address(*this) != nullptr && address(*this) == address(other);
}

bool Value::truthy() const {
  if (is_bool() || is_int()) return as_int() != 0;
  if (is_float()) return as_double() != 0;
  if (is_text()) return !utf8().empty();
  if (is_sequence()) return !items().empty();
  if (is_dict()) return !dict().entries.empty();
  if (is_object()) return object().size().value_or(1) != 0;
  return false;
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {"NoneType", "Undefined", "bool", "int",
                                         "float",    "str",       "list", "dict"};
  if (is_object()) return object().type_name();
  if (is_tuple()) return "tuple";
  return is_markup() ? "Markup" : kNames[data_.index()];
}

uint32_t Value::depth() const {
  if (is_sequence()) return std::get<ListPtr>(data_)->depth;
  if (is_dict()) return dict().depth;
  return is_object() ? object().depth() : 0;
}

const Value* Dict::find(std::string_view key) const {
  const auto found = text_index_.find(key);
  return found == text_index_.end() ? nullptr : &entries[found->second].second;
}

const Value* Dict::find(const Value& key) const {
  const std::optional<size_t> at = position(key);
  return at ? &entries[*at].second : nullptr;
}

std::optional<size_t> Dict::position(const Value& key) const {
  if (key.is_text()) {
    const auto found = text_index_.find(key.utf8());
    return found == text_index_.end() ? std::nullopt : std::optional(found->second);
  }
  if (!is_scalar_key(key) || other_index_.empty()) return std::nullopt;
  const auto found = other_index_.find(key_spelling(key));
  return found == other_index_.end() ? std::nullopt : std::optional(found->second);
}

void Dict::set(const Value& key, Value value) {
  depth = std::max(depth, checked_depth(value.depth()));
  if (const std::optional<size_t> at = position(key)) {
    entries[*at].second = std::move(value);
    return;
  }
  if (key.is_text())
    text_index_.emplace(key.utf8(), entries.size());
  else if (is_scalar_key(key))
    other_index_.emplace(key_spelling(key), entries.size());
  else
    throw Failure(cat("unhashable type: '", key.type_name(), "' (dict keys are text, numbers or none)"));
  entries.emplace_back(key, std::move(value));
}

void fail_undefined(const Value& undefined) { throw Failure(undefined.undefined_message()); }

Iterator iterate(const Value& value) {
  if (value.is_text()) return iterate_text(value.text_ptr());
  if (value.is_sequence())
    return count_up(value.items().size(), [value](size_t i) { return value.items()[i]; });
  if (value.is_dict())
    return count_up(value.dict().entries.size(), [value](size_t i) { return value.dict().entries[i].first; });
  if (value.is_undefined()) return [] { return std::optional<Value>(); };
  if (value.is_object())
    if (Iterator iterator = value.object().iterate()) return iterator;
  throw Failure(cat("'", value.type_name(), "' object is not iterable"));
}

std::vector<Value> to_vector(const Value& value) {
  if (value.is_sequence()) return value.items();
  std::vector<Value> items;
  const Iterator next = iterate(value);
  while (std::optional<Value> item = next()) {
    if (items.size() == kMaxItems) throw Failure(cat("more than ", kMaxItems, " items"));
    items.push_back(std::move(*item));
  }
  return items;
}

void require_hashable(const Value& value) {
  if (value.is_list() || value.is_dict()) throw Failure(cat("unhashable type: '", value.type_name(), "'"));
  if (!value.is_tuple()) return;
  for (const Value& item : value.items()) require_hashable(item);
}

std::optional<size_t> length_of(const Value& value) {
  if (value.is_text()) return value.text().length;
  if (value.is_sequence()) return value.items().size();
  if (value.is_dict()) return value.dict().entries.size();
  if (value.is_undefined()) return 0;
  return value.is_object() ? value.object().size() : std::nullopt;
}

Value from_json(const Json& json) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return {};
    case boost::json::kind::bool_:
      return json.get_bool();
    case boost::json::kind::int64:
      return Int{json.get_int64()};
    case boost::json::kind::uint64:
      return Int{json.get_uint64()};
    case boost::json::kind::double_:
      return json.get_double();
    case boost::json::kind::string:
      return Value(std::string(json.get_string()));
    case boost::json::kind::array: {
      std::vector<Value> items;
      for (const Json& item : json.get_array()) items.push_back(from_json(item));
      return Value::list(std::move(items));
    }
    case boost::json::kind::object: {
      auto dict = std::make_shared<Dict>();
      for (const auto& [key, item] : json.get_object()) dict->set(Value(std::string(key)), from_json(item));
      return DictPtr(std::move(dict));
    }
  }
  return {};
}

}  // namespace lmdeploy::jinja
