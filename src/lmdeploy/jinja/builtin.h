// How filters, tests, methods and global functions are declared and get their arguments.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

class Args;

struct Builtin {
  std::string_view name;
  /// Names separated by blanks; "name?" may be left out; "*" takes further positional ones, "**" named ones.
  /// "self", and all before a "/", are positional only.
  std::string_view parameters;
  Value (*run)(Interpreter& interpreter, Args& args);
};

/// The arguments of one call, bound to the parameters of a Builtin.
class Args {
 public:
  /// Throws Failure for missing, surplus or unknown arguments.
  Args(const Builtin& builtin, Arguments arguments);

  const Value& operator[](size_t i) const { return *bound_[i]; }
  bool has(size_t i) const { return bound_[i].has_value(); }
  Value get(size_t i, Value absent) const { return has(i) ? *bound_[i] : absent; }
  bool flag(size_t i, bool absent) const { return has(i) ? bound_[i]->truthy() : absent; }
  /// Throws Failure unless an integer.
  Int integer(size_t i) const;
  Int integer(size_t i, Int absent) const { return has(i) ? integer(i) : absent; }
  /// Throws Failure unless text.
  const std::string& text(size_t i) const;
  std::string text(size_t i, std::string_view absent) const { return has(i) ? text(i) : std::string(absent); }
  /// Not given, or none.
  bool absent_or_none(size_t i) const { return !has(i) || bound_[i]->is_none(); }

  Arguments rest;  // what "*" and "**" took

 private:
  /// The first `num_positional` of `names` cannot be named.
  void bind_named(std::span<const std::string_view> names, size_t num_positional, Arguments& arguments,
                  bool takes_rest);
  std::string_view name_;
  std::vector<std::optional<Value>> bound_;
};

Value call_builtin(const Builtin& builtin, Interpreter& interpreter, Arguments arguments);

/// By name in a table; null when there is none.
const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name);

// The tables.
std::span<const Builtin> text_methods();
std::span<const Builtin> list_methods();
std::span<const Builtin> tuple_methods();
std::span<const Builtin> dict_methods();
std::span<const Builtin> float_methods();
/// Takes the input as first argument.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
/// A function that every template sees (range, namespace, ...); null when there is none.
const Value* find_global(std::string_view name);

/// The method `name` of a value, bound to it; a mutating one is undefined with the sandbox's message.
std::optional<Value> find_method(const Value& self, std::string_view name);

}  // namespace lmdeploy::jinja
