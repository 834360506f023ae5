// Runs a syntax tree. One per rendering.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lmdeploy/jinja/ast.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/operators.h"
#include "lmdeploy/jinja/template.h"

namespace lmdeploy::jinja {

/// Variables of one block; a name that is not here is looked up in `parent`.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string_view, Value>> variables;  // the names live in the tree

  const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

/// namespace(...): the one thing that templates can change.
class Namespace final : public Object {
 public:
  std::string_view type_name() const override { return "Namespace"; }
  void print(std::string& out, int depth) const override;
  std::optional<Value> attribute(Interpreter& interpreter, std::string_view name) override;
  void set(const std::string& name, Value value);
  size_t num_fields() const { return fields_.size(); }
  void clear() { fields_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> fields_;
};

class LoopState;

class Interpreter {
 public:
  Interpreter(const DictPtr& variables, const Clock& clock);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  /// Throws Failure; line() then says where.
  std::string render(const Body& body);
  int line() const { return line_; }

  // What built-in functions need.
  Value call(const Value& callee, Arguments arguments);
  /// value.name as jinja2 looks it up: method or attribute first, then key.
  Value attribute(const Value& value, std::string_view name);
  /// value[key]: item first, then attribute.
  Value item(const Value& value, const Value& key);
  Value apply_filter(std::string_view name, const Value& input, Arguments arguments);
  bool apply_test(std::string_view name, const Value& input, Arguments arguments);
  Value new_namespace(std::vector<std::pair<std::string, Value>> fields);
  Budget& budget() { return budget_; }
  LocalTime now() const { return clock_(); }

  /// Runs the body of a macro with its parameters bound in a scope below `closure`.
  Value call_macro(const MacroDefinition& macro, const ScopePtr& closure, Arguments arguments);
  /// Runs a `for` over `iterable`; `depth` counts loop(...) calls around it. Returns whether the
  /// body reached its end for some item: if not, also after break and continue, jinja2 runs the `else` part.
  bool run_loop(const For& node, const ScopePtr& outer, const Value& iterable, int depth);
  /// What `body` prints.
  template <typename Run>
  std::string capture(Run run);

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Statements: interpreter.cc.
  Flow run(const Body& body);
  Flow run_node(const Data& node);
  Flow run_node(const Output& node);
  Flow run_node(const If& node);
  Flow run_node(const For& node);
  Flow run_node(const Set& node);
  Flow run_node(const SetBlock& node);
  Flow run_node(const Macro& node);
  Flow run_node(const CallBlock& node);
  Flow run_node(const FilterBlock& node);
  Flow run_node(const With& node);
  Flow run_node(const Scoped& node);
  Flow run_node(const Break&) { return Flow::kBreak; }
  Flow run_node(const Continue&) { return Flow::kContinue; }
  Flow run_node(const NeedsLoader& node);
  Flow run_scoped(const Body& body);
  void assign(const Target& target, const Value& value);
  void write(std::string_view text);
  void bind_parameters(const MacroDefinition& macro, Arguments& arguments);
  Value make_macro(const MacroDefinition& definition);

  // Expressions: evaluate.cc.
  Value evaluate(const Expression& expression);
  Value evaluate_or_none(const ExpressionPtr& expression);
  Value eval(const Literal& node) { return node.value; }
  Value eval(const Name& node);
  Value eval(const ListDisplay& node);
  Value eval(const DictDisplay& node);
  Value eval(const Unary& node);
  Value eval(const Binary& node);
  Value eval(const Logical& node);
  Value eval(const Comparison& node);
  Value eval(const Concatenation& node);
  Value eval(const Conditional& node);
  Value eval(const AttributeAccess& node);
  Value eval(const Subscript& node);
  Value eval(const SliceAccess& node);
  Value eval(const Call& node);
  Value eval(const Filter& node);
  Value eval(const Test& node);
  Arguments evaluate_arguments(const CallArguments& arguments);
  Value charged(Value made);

  // One level of recursion of the tree walk or of a macro.
  class Level {
   public:
    explicit Level(Interpreter& interpreter);
    ~Level() { --interpreter_.level_; }

   private:
    Interpreter& interpreter_;
  };
  // Makes `scope` the current one for a while.
  class Enter {
   public:
    Enter(Interpreter& interpreter, ScopePtr scope) : interpreter_(interpreter), outer_(std::move(scope)) {
      std::swap(interpreter_.scope_, outer_);
    }
    ~Enter() { std::swap(interpreter_.scope_, outer_); }

   private:
    Interpreter& interpreter_;
    ScopePtr outer_;
  };
  ScopePtr inner_scope() const;

  const Clock& clock_;
  Budget budget_;
  int level_ = 0;
  int line_ = 0;
  ScopePtr scope_;
  ScopePtr top_;  // of the template itself
  std::string* out_ = nullptr;
  Value filter_input_;  // the body of the filter or set block whose filters are being applied
  // Things that values may refer to in circles: emptied at the end.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<ScopePtr> closures_;
};

template <typename Run>
std::string Interpreter::capture(Run run_body) {
  std::string text;
  struct Redirect {
    Redirect(std::string*& slot, std::string* to) : slot_(slot), saved_(std::exchange(slot, to)) {}
    ~Redirect() { slot_ = saved_; }
    std::string*& slot_;
    std::string* saved_;
  };
  const Redirect redirect(out_, &text);
  run_body();
  return text;
}

}  // namespace lmdeploy::jinja
