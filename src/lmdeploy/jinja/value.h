// The values that templates compute with, as Python knows them. Immutable, but for namespaces, loop state and
// generators.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "lmdeploy/core/json.h"

namespace lmdeploy::jinja {

/// What a template or the engine refuses; turned into an Error, with the line, where the engine is left.
class Failure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Wide enough for every JSON integer and for sums and products of such; overflow is a Failure.
using Int = __int128;
std::string to_string(Int value);

class Value;
class Interpreter;
struct Arguments;

/// Yields the next item, or nothing at the end.
using Iterator = std::function<std::optional<Value>()>;

constexpr size_t kMaxTextBytes = size_t{64} << 20;
constexpr size_t kMaxItems = size_t{1} << 20;
/// Nesting of lists, dicts and iterators: keeps recursion over values within the stack.
constexpr uint32_t kMaxValueDepth = 200;

struct Text {
  std::string utf8;
  size_t length = 0;    // code points
  bool markup = false;  // `safe`: joined with other text it escapes that text
  bool ascii() const { return length == utf8.size(); }
};
struct List;
struct Dict;

/// A name, key or attribute that is not there. Prints as nothing; most other uses fail with `message`.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct None {};

/// Anything else: functions, macros, namespaces, loops, generators, ranges, dict views.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view type_name() const = 0;
  /// Of another object; an object always equals itself.
  virtual bool equals(const Object&) const { return false; }
  /// Appends str() of the object; `depth` counts the values around it (namespaces may be cyclic).
  virtual void print(std::string& out, int depth) const;
  virtual std::optional<Value> attribute(Interpreter& interpreter, std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value call(Interpreter& interpreter, Arguments arguments);
  /// An empty function: not iterable.
  virtual Iterator iterate() { return {}; }
  /// len(); nothing: has none.
  virtual std::optional<size_t> size() const { return std::nullopt; }
  /// The item at `index` < size(), for objects that are indexed like lists.
  virtual bool indexed() const { return false; }
  virtual Value item(size_t index) const;
  uint32_t depth() const { return depth_; }

 protected:
  Object() = default;
  /// `inner`: the deepest value that this one holds.
  explicit Object(const Value& inner);

 private:
  uint32_t depth_ = 0;
};

using TextPtr = std::shared_ptr<const Text>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using ObjectPtr = std::shared_ptr<Object>;

class Value {
 public:
  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}    // NOLINT: implicit by intent, here and below
  Value(Int value) : data_(value) {}     // NOLINT
  Value(double value) : data_(value) {}  // NOLINT
  Value(std::string utf8, bool markup = false);
  Value(const char* utf8) : Value(std::string(utf8)) {}               // NOLINT
  Value(ListPtr list) : data_(std::move(list)) {}                     // NOLINT
  Value(DictPtr dict) : data_(std::move(dict)) {}                     // NOLINT
  Value(ObjectPtr object) : data_(std::move(object)) {}               // NOLINT
  Value(Undefined undefined) : data_(std::move(undefined)) {}         // NOLINT
  Value(std::vector<Value> items) : Value(list(std::move(items))) {}  // NOLINT
  static Value list(std::vector<Value> items);
  /// `names` of a named tuple's items; they outlive the value.
  static Value tuple(std::vector<Value> items, std::span<const std::string_view> names = {});
  static Value undefined(std::string message);
  static Value size(size_t value) { return Int{static_cast<int64_t>(value)}; }

  bool is_none() const { return holds<None>(); }
  bool is_undefined() const { return holds<Undefined>(); }
  bool is_bool() const { return holds<bool>(); }
  bool is_int() const { return holds<Int>(); }
  bool is_float() const { return holds<double>(); }
  bool is_text() const { return holds<TextPtr>(); }
  bool is_dict() const { return holds<DictPtr>(); }
  bool is_list() const;                                  // not a tuple
  bool is_tuple() const;                                 // not a list
  bool is_sequence() const { return holds<ListPtr>(); }  // list or tuple
  bool is_object() const { return holds<ObjectPtr>(); }
  /// An integer as Python counts it: True and False are 1 and 0.
  bool is_integral() const { return is_int() || is_bool(); }
  bool is_number() const { return is_integral() || is_float(); }

  // The content; the kind must be right.
  bool as_bool() const { return std::get<bool>(data_); }
  Int as_int() const { return is_bool() ? Int{as_bool()} : std::get<Int>(data_); }
  double as_double() const { return is_float() ? std::get<double>(data_) : static_cast<double>(as_int()); }
  const Text& text() const { return *std::get<TextPtr>(data_); }
  const TextPtr& text_ptr() const { return std::get<TextPtr>(data_); }
  const std::string& utf8() const { return text().utf8; }
  bool is_markup() const { return is_text() && text().markup; }
  const std::vector<Value>& items() const;
  /// An item of a named tuple; null when it has no such name.
  const Value* named_item(std::string_view name) const;
  const Dict& dict() const { return *std::get<DictPtr>(data_); }
  const DictPtr& dict_ptr() const { return std::get<DictPtr>(data_); }
  Object& object() const { return *std::get<ObjectPtr>(data_); }
  const ObjectPtr& object_ptr() const { return std::get<ObjectPtr>(data_); }
  const std::string& undefined_message() const { return *std::get<Undefined>(data_).message; }
  /// Both are the same heap object.
  bool same_object(const Value& other) const;

  bool truthy() const;
  /// "str", "NoneType", ... as Python's messages say.
  std::string_view type_name() const;
  uint32_t depth() const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  std::variant<None, Undefined, bool, Int, double, TextPtr, ListPtr, DictPtr, ObjectPtr> data_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  std::span<const std::string_view> names;  // of a named tuple
  uint32_t depth = 1;
};

/// Insertion-ordered. Keys are text, numbers, booleans or none (1, 1.0 and true are one key, as in Python).
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  uint32_t depth = 1;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  /// Adds or replaces. Only before the dict is shared. Throws Failure for a key of another kind.
  void set(const Value& key, Value value);

 private:
  std::optional<size_t> position(const Value& key) const;
  std::unordered_map<std::string_view, size_t> text_index_;  // the views look into the entries' Text
  std::unordered_map<std::string, size_t> other_index_;      // by a spelling that equal keys share
};

/// Arguments of one call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

/// Throws Failure with the message of an undefined value.
[[noreturn]] void fail_undefined(const Value& undefined);
/// Iterates as Python's iter(); throws Failure for what is not iterable.
Iterator iterate(const Value& value);
/// All items as list() gives them; at most kMaxItems.
std::vector<Value> to_vector(const Value& value);
/// Throws Failure for a list, a dict and a tuple that holds one.
void require_hashable(const Value& value);
/// len(), where there is one.
std::optional<size_t> length_of(const Value& value);

Value from_json(const Json& json);

}  // namespace lmdeploy::jinja
