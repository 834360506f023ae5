// Tests: what may follow `is`.
#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"

namespace lmdeploy::jinja {
namespace {

// A test that only asks for the kind of value.
template <bool (*kHolds)(const Value&)>
Value kind_test(Interpreter&, Args& args) {
  return kHolds(args[0]);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is_bool(); }
bool is_true(const Value& v) { return v.is_bool() && v.as_bool(); }
bool is_false(const Value& v) { return v.is_bool() && !v.as_bool(); }
bool is_integer(const Value& v) { return v.is_int(); }
bool is_float(const Value& v) { return v.is_float(); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_text(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_escaped(const Value& v) { return v.is_markup(); }
bool is_callable(const Value& v) { return v.is_undefined() || (v.is_object() && v.object().callable()); }
bool is_lower(const Value& v) { return is_cased_as(to_text(v), CharClass::kLower); }
bool is_upper(const Value& v) { return is_cased_as(to_text(v), CharClass::kUpper); }
// What has len() and [].
bool is_sequence(const Value& v) {
  return v.is_text() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
         (v.is_object() && v.object().indexed());
}
bool is_iterable(const Value& v) {
  return v.is_text() || v.is_sequence() || v.is_dict() || v.is_undefined() ||
         (v.is_object() && v.object().iterate() != nullptr);
}

template <CompareOp kOp>
Value compare_test(Interpreter& interpreter, Args& args) {
  return compare(kOp, args[0], args[1], interpreter.budget());
}

Int remainder(const Value& value, Int divisor) {
  const Value result = arithmetic(BinaryOp::kModulo, value, divisor);
  if (!result.is_number()) throw Failure("not all arguments converted during string formatting");
  return result.is_float() ? (result.as_double() == 0   ? 0
                              : result.as_double() == 1 ? 1
                                                        : 2)
                           : result.as_int();
}
Value odd(Interpreter&, Args& args) { return remainder(args[0], 2) == 1; }
Value even(Interpreter&, Args& args) { return remainder(args[0], 2) == 0; }
Value divisible_by(Interpreter&, Args& args) { return remainder(args[0], args.integer(1)) == 0; }

// Python's `is`.
Value same_as(Interpreter&, Args& args) {
  const Value &a = args[0], &b = args[1];
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_bool() || b.is_bool()) return a.is_bool() && b.is_bool() && a.as_bool() == b.as_bool();
  return a.same_object(b) || (a.is_int() && b.is_int() && a.as_int() == b.as_int());
}

Value filter_exists(Interpreter&, Args& args) { return find_filter(to_text(args[0])) != nullptr; }
Value test_exists(Interpreter&, Args& args) { return find_test(to_text(args[0])) != nullptr; }

constexpr Builtin kTests[] = {
    {"!=", "value other", compare_test<CompareOp::kNotEqual>},
    {"<", "value other", compare_test<CompareOp::kLess>},
    {"<=", "value other", compare_test<CompareOp::kLessEqual>},
    {"==", "value other", compare_test<CompareOp::kEqual>},
    {">", "value other", compare_test<CompareOp::kGreater>},
    {">=", "value other", compare_test<CompareOp::kGreaterEqual>},
    {"boolean", "value", kind_test<is_boolean>},
    {"callable", "value", kind_test<is_callable>},
    {"defined", "value", kind_test<is_defined>},
    {"divisibleby", "value num", divisible_by},
    {"eq", "value other", compare_test<CompareOp::kEqual>},
    {"equalto", "value other", compare_test<CompareOp::kEqual>},
    {"escaped", "value", kind_test<is_escaped>},
    {"even", "value", even},
    {"false", "value", kind_test<is_false>},
    {"filter", "value", filter_exists},
    {"float", "value", kind_test<is_float>},
    {"ge", "value other", compare_test<CompareOp::kGreaterEqual>},
    {"greaterthan", "value other", compare_test<CompareOp::kGreater>},
    {"gt", "value other", compare_test<CompareOp::kGreater>},
    {"in", "value seq", compare_test<CompareOp::kIn>},
    {"integer", "value", kind_test<is_integer>},
    {"iterable", "value", kind_test<is_iterable>},
    {"le", "value other", compare_test<CompareOp::kLessEqual>},
    {"lessthan", "value other", compare_test<CompareOp::kLess>},
    {"lower", "value", kind_test<is_lower>},
    {"lt", "value other", compare_test<CompareOp::kLess>},
    {"mapping", "value", kind_test<is_mapping>},
    {"ne", "value other", compare_test<CompareOp::kNotEqual>},
    {"none", "value", kind_test<is_none>},
    {"number", "value", kind_test<is_number>},
    {"odd", "value", odd},
    {"sameas", "value other", same_as},
    {"sequence", "value", kind_test<is_sequence>},
    {"string", "value", kind_test<is_string>},
    {"test", "value", test_exists},
    {"true", "value", kind_test<is_true>},
    {"undefined", "value", kind_test<is_undefined>},
    {"upper", "value", kind_test<is_upper>},
};

}  // namespace

const Builtin* find_test(std::string_view name) { return find_builtin(kTests, name); }

}  // namespace lmdeploy::jinja
