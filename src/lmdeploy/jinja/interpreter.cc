// Statements: output, control flow, scopes, macros.
#include "lmdeploy/jinja/interpreter.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/loop.h"
#include "lmdeploy/jinja/print.h"

namespace lmdeploy::jinja {
namespace {

// Levels of expressions, statements and macros within each other. A level takes up to 1 KiB of stack (3 KiB
// in a sanitizer build), a thread has 8 MiB.
constexpr int kMaxLevels = 1500;

class MacroObject final : public Object {
 public:
  MacroObject(const MacroDefinition& definition, ScopePtr closure)
      : definition_(definition), closure_(std::move(closure)) {}
  std::string_view type_name() const override { return "Macro"; }
  void print(std::string& out, int) const override { out += cat("<Macro '", definition_.name, "'>"); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    return interpreter.call_macro(definition_, closure_, std::move(arguments));
  }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    if (name == "name") return Value(definition_.name);
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const auto& [parameter, value] : definition_.parameters) names.emplace_back(parameter);
    return Value::tuple(std::move(names));
  }

 private:
  const MacroDefinition& definition_;
  ScopePtr closure_;
};

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const auto& [own, value] : variables)
    if (own == name) return &value;
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [own, old] : variables)
    if (own == name) {
      old = std::move(value);
      return;
    }
  variables.emplace_back(name, std::move(value));
}

void Namespace::print(std::string& out, int depth) const {
  out += "<Namespace {";
  for (size_t i = 0; i < fields_.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, Value(fields_[i].first), depth + 1);
    out += ": ";
    append_repr(out, fields_[i].second, depth + 1);
  }
  out += "}>";
}

std::optional<Value> Namespace::attribute(Interpreter& interpreter, std::string_view name) {
  interpreter.budget().charge(fields_.size() / 32);
  for (const auto& [own, value] : fields_)
    if (own == name) return value;
  return std::nullopt;
}

void Namespace::set(const std::string& name, Value value) {
  for (auto& [own, old] : fields_)
    if (own == name) {
      old = std::move(value);
      return;
    }
  fields_.emplace_back(name, std::move(value));
}

Interpreter::Interpreter(const DictPtr& variables, const Clock& clock)
    : clock_(clock), scope_(std::make_shared<Scope>()) {
  for (const auto& [name, value] : variables->entries) scope_->variables.emplace_back(name.utf8(), value);
}

Interpreter::~Interpreter() {
  for (const auto& one : namespaces_) one->clear();
  for (const auto& closure : closures_) closure->variables.clear();
}

Interpreter::Level::Level(Interpreter& interpreter) : interpreter_(interpreter) {
  if (interpreter.level_ >= kMaxLevels) throw Failure("maximum recursion depth exceeded");
  ++interpreter.level_;
}

ScopePtr Interpreter::inner_scope() const {
  auto scope = std::make_shared<Scope>();
  scope->parent = scope_;
  return scope;
}

std::string Interpreter::render(const Body& body) {
  // Assignments at the top hide the caller's variables and leave them as they are.
  top_ = inner_scope();
  const Enter enter(*this, top_);
  return capture([&] { run(body); });
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > kMaxTextBytes)
    throw Failure(cat("more than ", kMaxTextBytes >> 20, " MiB of output"));
  budget_.charge(text.size() / 32);
  *out_ += text;
}

Interpreter::Flow Interpreter::run(const Body& body) {
  const Level level(*this);
  for (const Statement& statement : body) {
    budget_.charge(1);
    line_ = statement.line;
    const Flow flow = std::visit([&](const auto& node) { return run_node(node); }, statement.node);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_scoped(const Body& body) {
  const Enter enter(*this, inner_scope());
  return run(body);
}

Interpreter::Flow Interpreter::run_node(const Data& node) {
  write(node.text);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const Output& node) {
  const Value value = evaluate(*node.expression);
  if (value.is_text())
    write(value.utf8());
  else
    write(to_text(value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const If& node) {
  for (const auto& [condition, body] : node.branches)
    if (evaluate(*condition).truthy()) return run(body);
  return run(node.otherwise);
}

Interpreter::Flow Interpreter::run_node(const For& node) {
  const Value iterable = evaluate(*node.iterable);
  if (run_loop(node, scope_, iterable, /*depth=*/0)) return Flow::kNormal;
  return run_scoped(node.otherwise);
}

bool Interpreter::run_loop(const For& node, const ScopePtr& outer, const Value& iterable, int depth) {
  const Enter enter(*this, outer);
  Iterator items = iterate(iterable);
  std::optional<size_t> size = length_of(iterable);
  if (node.filter) {
    size.reset();
    items = [this, &node, outer, source = std::move(items)]() -> std::optional<Value> {
      while (std::optional<Value> item = source()) {
        const Enter filter_scope(*this, outer);
        const Enter item_scope(*this, inner_scope());
        assign(node.target, *item);
        if (evaluate(*node.filter).truthy()) return item;
      }
      return std::nullopt;
    };
  }
  LoopState::Recurse recurse;
  if (node.recursive)
    recurse = [this, &node, outer](const Value& inner, int inner_depth) {
      const Level level(*this);
      return Value(capture([&] {
        if (run_loop(node, outer, inner, inner_depth)) return;
        const Enter else_scope(*this, outer);
        run_scoped(node.otherwise);
      }));
    };
  const auto loop = std::make_shared<LoopState>(iterable, std::move(items), size, depth, std::move(recurse));
  bool completed = false;
  while (const std::optional<Value> item = loop->next()) {
    budget_.charge(1);
    const Enter body_scope(*this, inner_scope());
    scope_->set("loop", ObjectPtr(loop));
    assign(node.target, *item);
    const Flow flow = run(node.body);
    if (flow == Flow::kBreak) break;
    completed |= flow == Flow::kNormal;
  }
  return completed;
}

void Interpreter::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    const std::vector<Value> items = to_vector(value);
    budget_.charge(items.size());
    if (items.size() != target.parts.size())
      throw Failure(cat("expected ", target.parts.size(), " values to unpack, got ", items.size()));
    for (size_t i = 0; i < items.size(); ++i) assign(target.parts[i], items[i]);
    return;
  }
  if (target.attribute.empty()) {
    budget_.charge(scope_->variables.size() / 32);
    scope_->set(target.name, value);
    return;
  }
  const Value holder = eval(Name{target.name});
  auto* space = holder.is_object() ? dynamic_cast<Namespace*>(&holder.object()) : nullptr;
  if (space == nullptr) throw Failure("cannot assign attribute on non-namespace object");
  budget_.charge(space->num_fields() / 32);
  space->set(target.attribute, value);
}

Interpreter::Flow Interpreter::run_node(const Set& node) {
  assign(node.target, evaluate(*node.value));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const SetBlock& node) {
  Flow flow = Flow::kNormal;
  Value value(capture([&] { flow = run_scoped(node.body); }));
  if (flow != Flow::kNormal) return flow;
  if (node.filter) {
    filter_input_ = std::move(value);
    value = evaluate(*node.filter);
  }
  assign(node.target, value);
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const FilterBlock& node) {
  Flow flow = Flow::kNormal;
  Value body(capture([&] { flow = run_scoped(node.body); }));
  if (flow != Flow::kNormal) return flow;  // jinja2 drops what was printed before break and continue
  filter_input_ = std::move(body);
  write(to_text(evaluate(*node.filter)));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const With& node) {
  const ScopePtr scope = inner_scope();
  std::vector<Value> values;  // all seen from outside
  for (const auto& [target, expression] : node.bindings) values.push_back(evaluate(*expression));
  const Enter enter(*this, scope);
  for (size_t i = 0; i < values.size(); ++i) assign(node.bindings[i].first, values[i]);
  return run(node.body);
}

Interpreter::Flow Interpreter::run_node(const Scoped& node) {
  const Enter enter(*this, node.sees_top_only ? top_ : scope_);
  return run_scoped(node.body);
}

Interpreter::Flow Interpreter::run_node(const NeedsLoader& node) {
  throw Failure(cat("'", node.tag, "' needs other template files; a chat template must be one file"));
}

Value Interpreter::make_macro(const MacroDefinition& definition) {
  if (closures_.empty() || closures_.back() != scope_) closures_.push_back(scope_);
  budget_.charge(16);
  return ObjectPtr(std::make_shared<MacroObject>(definition, scope_));
}

Interpreter::Flow Interpreter::run_node(const Macro& node) {
  scope_->set(node.definition.name, make_macro(node.definition));
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_node(const CallBlock& node) {
  const auto& call_node = std::get<Call>(node.call->node);
  const Value callee = evaluate(*call_node.callee);
  Arguments arguments = evaluate_arguments(call_node.arguments);
  arguments.named.emplace_back("caller", make_macro(node.caller));
  write(to_text(call(callee, std::move(arguments))));
  return Flow::kNormal;
}

// Parameters, then `caller`, `kwargs` and `varargs` for the macros that use them.
void Interpreter::bind_parameters(const MacroDefinition& macro, Arguments& arguments) {
  auto& named = arguments.named;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, default_value] = macro.parameters[i];
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else if (!(value = take(name))) {
      value = default_value ? evaluate(*default_value)
                            : Value::undefined(cat("parameter '", name, "' was not provided"));
    }
    scope_->set(name, std::move(*value));
  }
  if (macro.uses_caller)
    scope_->set("caller", take("caller").value_or(Value::undefined("No caller defined")));
  if (macro.uses_kwargs) {
    auto kwargs = std::make_shared<Dict>();
    for (auto& [name, value] : named) kwargs->set(Value(name), std::move(value));
    scope_->set("kwargs", DictPtr(std::move(kwargs)));
  } else if (!named.empty()) {
    throw Failure(cat("macro '", macro.name, "' takes no keyword argument '", named[0].first, "'"));
  }
  const size_t num_bound = std::min(arguments.positional.size(), macro.parameters.size());
  std::vector<Value> surplus(arguments.positional.begin() + static_cast<std::ptrdiff_t>(num_bound),
                             arguments.positional.end());
  if (!surplus.empty() && !macro.uses_varargs)
    throw Failure(
        cat("macro '", macro.name, "' takes not more than ", macro.parameters.size(), " argument(s)"));
  if (macro.uses_varargs) scope_->set("varargs", Value::tuple(std::move(surplus)));
}

Value Interpreter::call_macro(const MacroDefinition& macro, const ScopePtr& closure, Arguments arguments) {
  const Level level(*this);
  const int line = line_;
  const Enter definition_scope(*this, closure);
  const Enter macro_scope(*this, inner_scope());
  bind_parameters(macro, arguments);
  Value result(capture([&] { run(macro.body); }));
  line_ = line;
  return result;
}

}  // namespace lmdeploy::jinja
