// Functions that every template sees.
#include <locale.h>

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"

namespace lmdeploy::jinja {
namespace {

class Function final : public Object {
 public:
  explicit Function(const Builtin& builtin) : builtin_(builtin) {}
  std::string_view type_name() const override { return "function"; }
  void print(std::string& out, int) const override { out += cat("<function ", builtin_.name, ">"); }
  bool callable() const override { return true; }
  Value call(Interpreter& interpreter, Arguments arguments) override {
    return call_builtin(builtin_, interpreter, std::move(arguments));
  }

 private:
  const Builtin& builtin_;
};

class Range final : public Object {
 public:
  static constexpr Int kMaxSize = 100'000;  // the sandbox's MAX_RANGE
  Range(Int start, Int stop, Int step) : start_(start), stop_(stop), step_(step) {
    const Int span = step > 0 ? stop - start : start - stop, magnitude = step > 0 ? step : -step;
    const Int count = span <= 0 ? 0 : (span + magnitude - 1) / magnitude;
    if (count > kMaxSize)
      throw Failure("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    size_ = static_cast<size_t>(count);
  }
  std::string_view type_name() const override { return "range"; }
  void print(std::string& out, int) const override {
    out += cat("range(", to_string(start_), ", ", to_string(stop_));
    out += step_ == 1 ? ")" : cat(", ", to_string(step_), ")");
  }
  std::optional<size_t> size() const override { return size_; }
  bool indexed() const override { return true; }
  Value item(size_t index) const override { return start_ + static_cast<Int>(index) * step_; }
  Iterator iterate() override {
    return [range = *this, i = size_t{0}]() mutable {
      return i == range.size_ ? std::nullopt : std::optional(range.item(i++));
    };
  }

 private:
  Int start_, stop_, step_;
  size_t size_;
};

// cycler(a, b, ...): next() goes round.
class Cycler final : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(const Value& items) : Object(items), items_(items) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override;
  Value next() { return items_.items()[position_++ % items_.items().size()]; }
  void reset() { position_ = 0; }

 private:
  Value items_;
  size_t position_ = 0;
};

class CyclerMethod final : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool next)
      : Object(Value(ObjectPtr(cycler))), cycler_(std::move(cycler)), next_(next) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments) override {
    if (next_) return cycler_->next();
    cycler_->reset();
    return {};
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool next_;
};

std::optional<Value> Cycler::attribute(Interpreter&, std::string_view name) {
  if (name == "current") return items_.items()[position_ % items_.items().size()];
  if (name != "next" && name != "reset") return std::nullopt;
  return Value(ObjectPtr(std::make_shared<CyclerMethod>(shared_from_this(), name == "next")));
}

// joiner(sep): nothing at the first call, the separator at each later one.
class Joiner final : public Object {
 public:
  explicit Joiner(const Value& separator) : Object(separator), separator_(separator) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Interpreter&, Arguments) override { return std::exchange(used_, true) ? separator_ : Value(""); }

 private:
  Value separator_;
  bool used_ = false;
};

// `self`: jinja2's access to the template's blocks. A chat template prints each block once, where it stands.
class TemplateReference final : public Object {
 public:
  std::string_view type_name() const override { return "TemplateReference"; }
  void print(std::string& out, int) const override { out += "<TemplateReference None>"; }
  std::optional<Value> attribute(Interpreter&, std::string_view name) override {
    throw Failure(cat("self.", name, ": blocks cannot be called in chat templates"));
  }
};

Int bound(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral())
    throw Failure(cat("'", value.type_name(), "' object cannot be interpreted as an integer"));
  constexpr Int kLimit = Int{1} << 100;  // sums of bounds stay within Int
  return std::clamp(value.as_int(), -kLimit, kLimit);
}

Value range(Interpreter&, Args& args) {
  const Int first = bound(args[0]);
  const Int step = args.has(2) ? bound(args[2]) : 1;
  if (step == 0) throw Failure("range() arg 3 must not be zero");
  return ObjectPtr(args.has(1) ? std::make_shared<Range>(first, bound(args[1]), step)
                               : std::make_shared<Range>(0, first, 1));
}

// The fields of dict(...) and namespace(...): a mapping or pairs, then named ones.
std::vector<std::pair<Value, Value>> fields_of(const Arguments& arguments) {
  std::vector<std::pair<Value, Value>> fields;
  if (arguments.positional.size() > 1) throw Failure("expected at most 1 positional argument");
  for (const Value& source : arguments.positional) {
    if (source.is_undefined()) fail_undefined(source);
    if (source.is_dict()) {
      fields = source.dict().entries;
      continue;
    }
    for (const Value& pair : to_vector(source)) {
      const std::vector<Value> both = to_vector(pair);
      if (both.size() != 2) throw Failure("dictionary update sequence element must have length 2");
      fields.emplace_back(both[0], both[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) fields.emplace_back(Value(name), value);
  return fields;
}

Value dict(Interpreter&, Args& args) {
  auto made = std::make_shared<Dict>();
  for (auto& [key, value] : fields_of(args.rest)) made->set(key, std::move(value));
  return DictPtr(std::move(made));
}

Value make_namespace(Interpreter& interpreter, Args& args) {
  std::vector<std::pair<std::string, Value>> fields;
  for (auto& [key, value] : fields_of(args.rest)) fields.emplace_back(to_text(key), std::move(value));
  return interpreter.new_namespace(std::move(fields));
}

Value cycler(Interpreter&, Args& args) {
  if (args.rest.positional.empty()) throw Failure("at least one item has to be provided");
  return ObjectPtr(std::make_shared<Cycler>(Value::tuple(args.rest.positional)));
}

Value joiner(Interpreter&, Args& args) {
  return ObjectPtr(std::make_shared<Joiner>(args.get(0, Value(", "))));
}

Value raise_exception(Interpreter&, Args& args) { throw Failure(to_text(args[0])); }

// The directives that Python's datetime puts in itself, before the C library formats the rest.
std::string expand_python_directives(std::string_view format, const LocalTime& now) {
  const std::string microsecond = std::to_string(1'000'000 + now.microsecond).substr(1);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char kind = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (kind == 'f')
      out += microsecond;
    else if (kind == 'z')
      out += now.offset;
    else if (kind == 'Z')
      out += replace_text(now.zone, "%", "%%", SIZE_MAX);
    else
      out += format.substr(i, kind == 0 ? 1 : 2);
    i += kind == 0 ? 0 : 1;
  }
  return out;
}

// strftime() of the C locale.
Value strftime_now(Interpreter& interpreter, Args& args) {
  static const locale_t kLocale = newlocale(LC_ALL_MASK, "C", nullptr);
  constexpr size_t kMaxFormatBytes = 1024, kMaxOutputBytes = 64 * kMaxFormatBytes;
  const std::string& given = args.text(0);
  if (given.size() > kMaxFormatBytes)
    throw Failure(cat("strftime_now: a format of more than ", kMaxFormatBytes, " bytes"));
  if (given.find('\0') != std::string::npos) throw Failure("strftime_now: embedded null character");
  const LocalTime now = interpreter.now();
  const std::string format = expand_python_directives(given, now);
  std::string out(kMaxOutputBytes, '\0');
  out.resize(strftime_l(out.data(), out.size(), format.c_str(), &now.date, kLocale));
  return Value(repair_utf8(out));
}

Value refuse_lipsum(Interpreter&, Args&) {
  throw Failure("lipsum() is not supported in chat templates (a prompt must not depend on chance)");
}

constexpr Builtin kGlobals[] = {
    {"cycler", "*", cycler},
    {"dict", "* **", dict},
    {"joiner", "sep?", joiner},
    {"lipsum", "* **", refuse_lipsum},
    {"namespace", "* **", make_namespace},
    {"raise_exception", "message", raise_exception},
    {"range", "start stop? step?", range},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Value* find_global(std::string_view name) {
  static const auto kValues = [] {
    std::vector<std::pair<std::string_view, Value>> values;
    for (const Builtin& builtin : kGlobals)
      values.emplace_back(builtin.name, ObjectPtr(std::make_shared<Function>(builtin)));
    values.emplace_back("self", ObjectPtr(std::make_shared<TemplateReference>()));
    return values;
  }();
  for (const auto& [own, value] : kValues)
    if (own == name) return &value;
  return nullptr;
}

}  // namespace lmdeploy::jinja
