// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lmdeploy/jinja/value.h"

namespace lmdeploy::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star, star_star;  // *args, **kwargs; may be null
};

enum class BinaryOp { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };
enum class UnaryOp { kMinus, kPlus, kNot };

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListDisplay {
  std::vector<ExpressionPtr> items;
  bool is_tuple;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Unary {
  UnaryOp op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOp op;
  ExpressionPtr left, right;
};
struct Logical {
  bool is_and;
  ExpressionPtr left, right;
};
/// a < b <= c: each operand is evaluated once, until one comparison is false.
struct Comparison {
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
/// a ~ b ~ c
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null
};
struct AttributeAccess {
  ExpressionPtr object;
  std::string name;
};
struct Subscript {
  ExpressionPtr object, index;
};
struct SliceAccess {
  ExpressionPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExpressionPtr callee;
  CallArguments arguments;
};
struct Filter {
  ExpressionPtr input;  // null: the body of the filter block around it
  std::string name;
  CallArguments arguments;
};
struct Test {
  ExpressionPtr input;
  std::string name;
  CallArguments arguments;
};

struct Expression {
  std::variant<Literal, Name, ListDisplay, DictDisplay, Unary, Binary, Logical, Comparison, Concatenation,
               Conditional, AttributeAccess, Subscript, SliceAccess, Call, Filter, Test>
      node;
  int line = 0;
  int height = 1;  // of the tree below, bounded by the parser
};

/// Where `for` and `set` store: a name, `namespace.attribute`, or a tuple of such.
struct Target {
  std::string name;
  std::string attribute;      // of the namespace `name`; empty: the name itself
  std::vector<Target> parts;  // not empty: a tuple
  bool is_tuple = false;
};

struct Data {
  std::string text;
};
struct Output {
  ExpressionPtr expression;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable;
  ExpressionPtr filter;  // may be null
  bool recursive;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // chain of filters over the body; may be null
  Body body;
};
/// The parameters and body of a macro or of the block of a `call`.
struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // default value: may be null
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  Body body;
};
struct Macro {
  MacroDefinition definition;
};
struct CallBlock {
  ExpressionPtr call;
  MacroDefinition caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> bindings;
  Body body;
};
/// A body with a scope of its own: generation, block, autoescape false.
struct Scoped {
  Body body;
};
struct Break {};
struct Continue {};
/// A tag that needs other templates (extends, include, import): fails when it is reached.
struct NeedsLoader {
  std::string tag;
};

struct Statement {
  std::variant<Data, Output, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Scoped, Break,
               Continue, NeedsLoader>
      node;
  int line = 0;
};

}  // namespace lmdeploy::jinja
