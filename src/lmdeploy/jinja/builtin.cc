#include "lmdeploy/jinja/builtin.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/interpreter.h"

namespace lmdeploy::jinja {
namespace {

// Methods that change their object: the sandbox refuses them.
constexpr std::string_view kListMutators[] = {"append", "clear",  "extend",  "insert",
                                              "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kDictMutators[] = {"clear", "pop", "popitem", "setdefault", "update"};

class BoundMethod final : public Object {
 public:
  BoundMethod(Value self, const Builtin& method) : Object(self), self_(std::move(self)), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  bool equals(const Object& other) const override {
    const auto* const method = dynamic_cast<const BoundMethod*>(&other);
    return method != nullptr && &method->method_ == &method_ && method->self_.same_object(self_);
  }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    interpreter.budget().charge_reading(self_);
    arguments.positional.insert(arguments.positional.begin(), self_);
    return call_builtin(method_, interpreter, std::move(arguments));
  }

 private:
  Value self_;
  const Builtin& method_;
};

std::vector<std::string_view> split_names(std::string_view parameters) {
  std::vector<std::string_view> names;
  while (!parameters.empty()) {
    const size_t end = std::min(parameters.find(' '), parameters.size());
    names.push_back(parameters.substr(0, end));
    parameters.remove_prefix(std::min(end + 1, parameters.size()));
  }
  return names;
}

std::span<const Builtin> methods_of(const Value& self) {
  if (self.is_text()) return text_methods();
  if (self.is_tuple()) return tuple_methods();
  if (self.is_sequence()) return list_methods();
  if (self.is_float()) return float_methods();
  return self.is_dict() ? dict_methods() : std::span<const Builtin>();
}

std::span<const std::string_view> mutators_of(const Value& self) {
  if (self.is_list()) return kListMutators;
  return self.is_dict() ? std::span<const std::string_view>(kDictMutators)
                        : std::span<const std::string_view>();
}

}  // namespace

Args::Args(const Builtin& builtin, Arguments arguments) : name_(builtin.name) {
  std::vector<std::string_view> names = split_names(builtin.parameters);
  const auto take = [&](std::string_view mark) {
    const bool found = !names.empty() && names.back() == mark;
    if (found) names.pop_back();
    return found;
  };
  const bool takes_named = take("**"), takes_positional = take("*");
  const auto slash = std::find(names.begin(), names.end(), "/");
  const auto num_positional = slash == names.end() ? 0 : static_cast<size_t>(slash - names.begin());
  if (slash != names.end()) names.erase(slash);
  bound_.resize(names.size());
  auto& positional = arguments.positional;
  if (positional.size() > names.size() && !takes_positional)
    throw Failure(cat(name_, "() takes at most ", names.size(), " arguments, ", positional.size(), " given"));
  for (size_t i = 0; i < positional.size(); ++i)
    if (i < names.size())
      bound_[i] = std::move(positional[i]);
    else
      rest.positional.push_back(std::move(positional[i]));
  bind_named(names, num_positional, arguments, takes_named);
  for (size_t i = 0; i < names.size(); ++i)
    if (!has(i) && names[i].back() != '?')
      throw Failure(cat(name_, "() is missing the argument '", names[i], "'"));
}

void Args::bind_named(std::span<const std::string_view> names, size_t num_positional, Arguments& arguments,
                      bool takes_rest) {
  for (auto& [name, value] : arguments.named) {
    const auto same = [&](std::string_view parameter) {
      if (parameter == "self") return false;  // positional only
      return parameter.back() == '?' ? parameter.substr(0, parameter.size() - 1) == name : parameter == name;
    };
    const auto found =
        std::find_if(names.begin() + static_cast<std::ptrdiff_t>(num_positional), names.end(), same);
    if (found == names.end()) {
      if (!takes_rest) throw Failure(cat(name_, "() got an unexpected keyword argument '", name, "'"));
      rest.named.emplace_back(std::move(name), std::move(value));
      continue;
    }
    auto& slot = bound_[static_cast<size_t>(found - names.begin())];
    if (slot) throw Failure(cat(name_, "() got multiple values for argument '", name, "'"));
    slot = std::move(value);
  }
}

Int Args::integer(size_t i) const {
  const Value& value = *bound_[i];
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral())
    throw Failure(cat(name_, "(): '", value.type_name(), "' object cannot be interpreted as an integer"));
  return value.as_int();
}

const std::string& Args::text(size_t i) const {
  const Value& value = *bound_[i];
  if (!value.is_text()) throw Failure(cat(name_, "(): argument must be str, not ", value.type_name()));
  return value.utf8();
}

Value call_builtin(const Builtin& builtin, Interpreter& interpreter, Arguments arguments) {
  Args args(builtin, std::move(arguments));
  return builtin.run(interpreter, args);
}

const Builtin* find_builtin(std::span<const Builtin> table, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const Builtin& b) { return b.name == name; });
  return found == table.end() ? nullptr : &*found;
}

std::optional<Value> find_method(const Value& self, std::string_view name) {
  const auto mutators = mutators_of(self);
  if (std::find(mutators.begin(), mutators.end(), name) != mutators.end())
    return Value::undefined(
        cat("access to attribute '", name, "' of '", self.type_name(), "' object is unsafe."));
  const Builtin* method = find_builtin(methods_of(self), name);
  if (method == nullptr) return std::nullopt;
  return Value(ObjectPtr(std::make_shared<BoundMethod>(self, *method)));
}

}  // namespace lmdeploy::jinja
