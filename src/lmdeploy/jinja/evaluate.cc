// Expressions, and what built-in functions ask of the interpreter.
#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

// "'dict object'", "'None'": how jinja2 names a thing that lacks something.
std::string describe(const Value& value) {
  return value.is_none() ? "None" : cat(value.type_name(), " object");
}

// The item number `index` of something with `size` items; negative ones count from the end.
std::optional<size_t> checked_index(Int index, size_t size) {
  if (index < 0) index += static_cast<Int>(size);
  if (index < 0 || index >= static_cast<Int>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

Value text_item(const Text& text, size_t index) {
  const size_t at = text.ascii() ? index : byte_offset(text.utf8, index);
  return Value(text.utf8.substr(at, decode_at(text.utf8, at).bytes), text.markup);
}

}  // namespace

Value Interpreter::charged(Value made) {
  budget_.charge_for(made);
  return made;
}

Value Interpreter::evaluate(const Expression& expression) {
  const Level level(*this);
  budget_.charge(1);
  line_ = expression.line;
  return std::visit([&](const auto& node) { return eval(node); }, expression.node);
}

Value Interpreter::evaluate_or_none(const ExpressionPtr& expression) {
  return expression ? evaluate(*expression) : Value();
}

Value Interpreter::eval(const Name& node) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    budget_.charge(scope->variables.size() / 32);
    if (const Value* found = scope->find(node.name)) return *found;
  }
  if (const Value* global = find_global(node.name)) return *global;
  return Value::undefined(cat("'", node.name, "' is undefined"));
}

Value Interpreter::eval(const ListDisplay& node) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const auto& item : node.items) items.push_back(evaluate(*item));
  return charged(node.is_tuple ? Value::tuple(std::move(items)) : Value::list(std::move(items)));
}

Value Interpreter::eval(const DictDisplay& node) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : node.entries) {
    const Value evaluated_key = evaluate(*key);
    dict->set(evaluated_key, evaluate(*value));
  }
  return charged(DictPtr(std::move(dict)));
}

Value Interpreter::eval(const Unary& node) {
  const Value operand = evaluate(*node.operand);
  if (node.op == UnaryOp::kNot) return !operand.truthy();
  if (node.op == UnaryOp::kMinus) return negate(operand);
  return negate(negate(operand));
}

Value Interpreter::eval(const Binary& node) {
  const Value left = evaluate(*node.left);
  const Value right = evaluate(*node.right);
  return charged(arithmetic(node.op, left, right));
}

Value Interpreter::eval(const Logical& node) {
  Value left = evaluate(*node.left);
  return left.truthy() == node.is_and ? evaluate(*node.right) : left;
}

Value Interpreter::eval(const Comparison& node) {
  Value left = evaluate(*node.first);
  for (const auto& [op, operand] : node.rest) {
    Value right = evaluate(*operand);
    if (!compare(op, left, right, budget_)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::eval(const Concatenation& node) {
  std::string text;
  for (const auto& part : node.parts) text += to_text(evaluate(*part));
  return charged(Value(std::move(text)));
}

Value Interpreter::eval(const Conditional& node) {
  if (evaluate(*node.condition).truthy()) return evaluate(*node.then);
  if (node.otherwise) return evaluate(*node.otherwise);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

Value Interpreter::eval(const AttributeAccess& node) { return attribute(evaluate(*node.object), node.name); }

Value Interpreter::eval(const Subscript& node) {
  const Value object = evaluate(*node.object);
  return item(object, evaluate(*node.index));
}

Value Interpreter::eval(const SliceAccess& node) {
  const Value object = evaluate(*node.object);
  budget_.charge_reading(object);
  const Value start = evaluate_or_none(node.start), stop = evaluate_or_none(node.stop);
  return charged(slice(object, start, stop, evaluate_or_none(node.step)));
}

Value Interpreter::eval(const Call& node) {
  const Value callee = evaluate(*node.callee);
  return charged(call(callee, evaluate_arguments(node.arguments)));
}

Value Interpreter::eval(const Filter& node) {
  const Value input = node.input ? evaluate(*node.input) : std::move(filter_input_);
  return charged(apply_filter(node.name, input, evaluate_arguments(node.arguments)));
}

Value Interpreter::eval(const Test& node) {
  const Value input = evaluate(*node.input);
  return apply_test(node.name, input, evaluate_arguments(node.arguments));
}

Arguments Interpreter::evaluate_arguments(const CallArguments& nodes) {
  Arguments arguments;
  for (const auto& node : nodes.positional) arguments.positional.push_back(evaluate(*node));
  if (nodes.star)
    for (Value& value : to_vector(evaluate(*nodes.star))) {
      budget_.charge(1);
      arguments.positional.push_back(std::move(value));
    }
  for (const auto& [name, node] : nodes.named) arguments.named.emplace_back(name, evaluate(*node));
  if (nodes.star_star) {
    const Value more = evaluate(*nodes.star_star);
    if (!more.is_dict()) throw Failure("the argument after ** must be a mapping");
    for (const auto& [name, value] : more.dict().entries) {
      if (!name.is_text()) throw Failure("keywords must be strings");
      arguments.named.emplace_back(name.utf8(), value);
    }
  }
  return arguments;
}

Value Interpreter::call(const Value& callee, Arguments arguments) {
  if (callee.is_undefined()) fail_undefined(callee);
  if (!callee.is_object()) throw Failure(cat("'", callee.type_name(), "' object is not callable"));
  return callee.object().call(*this, std::move(arguments));
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  if (value.is_undefined()) fail_undefined(value);
  if (std::optional<Value> method = find_method(value, name)) return *method;
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(name)) return *found;
  } else if (value.is_sequence()) {
    if (const Value* found = value.named_item(name)) return *found;
  } else if (value.is_object()) {
    if (std::optional<Value> found = value.object().attribute(*this, name)) return *found;
  }
  return Value::undefined(cat("'", describe(value), "' has no attribute '", name, "'"));
}

Value Interpreter::item(const Value& value, const Value& key) {
  if (value.is_undefined()) fail_undefined(value);
  budget_.charge_reading(key);
  if (value.is_dict()) {
    if (const Value* found = value.dict().find(key)) return *found;
  } else if (key.is_integral()) {
    const bool indexed =
        value.is_text() || value.is_sequence() || (value.is_object() && value.object().indexed());
    const auto index = checked_index(key.as_int(), indexed ? length_of(value).value_or(0) : 0);
    if (index && value.is_text()) {
      if (!value.text().ascii()) budget_.charge(*index / 32);
      return text_item(value.text(), *index);
    }
    if (index) return value.is_sequence() ? value.items()[*index] : value.object().item(*index);
  }
  if (key.is_text()) return attribute(value, key.utf8());
  return Value::undefined(cat(describe(value), " has no element ", repr(key)));
}

Value Interpreter::apply_filter(std::string_view name, const Value& input, Arguments arguments) {
  const Builtin* filter = find_filter(name);
  if (filter == nullptr) throw Failure(cat("No filter named '", name, "'."));
  budget_.charge_reading(input);
  arguments.positional.insert(arguments.positional.begin(), input);
  return call_builtin(*filter, *this, std::move(arguments));
}

bool Interpreter::apply_test(std::string_view name, const Value& input, Arguments arguments) {
  const Builtin* test = find_test(name);
  if (test == nullptr) throw Failure(cat("No test named '", name, "'."));
  arguments.positional.insert(arguments.positional.begin(), input);
  return call_builtin(*test, *this, std::move(arguments)).truthy();
}

Value Interpreter::new_namespace(std::vector<std::pair<std::string, Value>> fields) {
  budget_.charge(16);
  auto space = std::make_shared<Namespace>();
  for (auto& [name, value] : fields) space->set(name, std::move(value));
  namespaces_.push_back(space);
  return ObjectPtr(std::move(space));
}

}  // namespace lmdeploy::jinja
