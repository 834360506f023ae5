#include "lmdeploy/jinja/check_names.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/lexer.h"

namespace lmdeploy::jinja {
namespace {

// `lenient`: in a branch. Follows jinja2's compiler, whose frames for loops, macros and blocks are strict
// again.
class NameCheck {
 public:
  void run(const Body& body, bool lenient) {
    for (const Statement& statement : body)
      std::visit([&](const auto& node) { check(node, lenient); }, statement.node);
  }

 private:
  void check(const Data&, bool) {}
  void check(const Break&, bool) {}
  void check(const Continue&, bool) {}
  void check(const NeedsLoader&, bool) {}
  void check(const Output& node, bool lenient) { check(*node.expression, lenient); }
  void check(const Set& node, bool lenient) { check(*node.value, lenient); }
  void check(const Macro& node, bool) { check(node.definition); }
  void check(const Scoped& node, bool) { run(node.body, false); }
  void check(const If& node, bool) {
    for (const auto& [condition, body] : node.branches) {
      check(*condition, true);
      run(body, true);
    }
    run(node.otherwise, true);
  }
  void check(const For& node, bool lenient) {
    check(*node.iterable, lenient);
    if (node.filter) check(*node.filter, false);
    run(node.body, false);
    run(node.otherwise, false);
  }
  void check(const SetBlock& node, bool) {
    run(node.body, false);
    if (node.filter) check(*node.filter, false);
  }
  void check(const CallBlock& node, bool lenient) {
    check(*node.call, lenient);
    check(node.caller);
  }
  void check(const FilterBlock& node, bool) {
    check(*node.filter, false);
    run(node.body, false);
  }
  void check(const With& node, bool lenient) {
    for (const auto& [target, value] : node.bindings) check(*value, lenient);
    run(node.body, false);
  }
  void check(const MacroDefinition& macro) {
    for (const auto& [name, value] : macro.parameters)
      if (value) check(*value, false);
    run(macro.body, false);
  }

  void check(const Expression& expression, bool lenient) {
    lenient |= std::holds_alternative<Conditional>(expression.node);
    const auto* filter = std::get_if<Filter>(&expression.node);
    const auto* test = std::get_if<Test>(&expression.node);
    if (!lenient && filter != nullptr && find_filter(filter->name) == nullptr)
      throw SyntaxFailure(cat("No filter named '", filter->name, "'."), expression.line);
    if (!lenient && test != nullptr && find_test(test->name) == nullptr)
      throw SyntaxFailure(cat("No test named '", test->name, "'."), expression.line);
    for_each_child(expression, [&](const Expression& child) { check(child, lenient); });
  }
};

}  // namespace

void check_names(const Body& body) { NameCheck().run(body, false); }

}  // namespace lmdeploy::jinja
