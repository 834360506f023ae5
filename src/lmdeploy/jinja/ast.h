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

/// Calls `visit` with each expression directly below `parent`.
template <typename Visit>
class ChildVisitor {
 public:
  explicit ChildVisitor(Visit& visit) : visit_(visit) {}
  void operator()(const Literal&) {}
  void operator()(const Name&) {}
  void operator()(const ListDisplay& n) { all(n.items); }
  void operator()(const DictDisplay& n) {
    for (const auto& [key, value] : n.entries) one(key), one(value);
  }
  void operator()(const Unary& n) { one(n.operand); }
  void operator()(const Binary& n) { one(n.left), one(n.right); }
  void operator()(const Logical& n) { one(n.left), one(n.right); }
  void operator()(const Comparison& n) {
    one(n.first);
    for (const auto& [op, operand] : n.rest) one(operand);
  }
  void operator()(const Concatenation& n) { all(n.parts); }
  void operator()(const Conditional& n) { one(n.condition), one(n.then), one(n.otherwise); }
  void operator()(const AttributeAccess& n) { one(n.object); }
  void operator()(const Subscript& n) { one(n.object), one(n.index); }
  void operator()(const SliceAccess& n) { one(n.object), one(n.start), one(n.stop), one(n.step); }
  void operator()(const Call& n) { one(n.callee), all(n.arguments); }
  void operator()(const Filter& n) { one(n.input), all(n.arguments); }
  void operator()(const Test& n) { one(n.input), all(n.arguments); }

 private:
  void one(const ExpressionPtr& child) {
    if (child) visit_(*child);
  }
  void all(const std::vector<ExpressionPtr>& children) {
    for (const auto& child : children) one(child);
  }
  void all(const CallArguments& arguments) {
    all(arguments.positional);
    for (const auto& [name, value] : arguments.named) one(value);
    one(arguments.star), one(arguments.star_star);
  }
  Visit& visit_;
};
template <typename Visit>
void for_each_child(const Expression& parent, Visit visit) {
  std::visit(ChildVisitor<Visit>(visit), parent.node);
}

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
  /// A block without the word `scoped`: it sees the variables of the top level and no others.
  bool sees_top_only = false;
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
