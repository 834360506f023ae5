// Conversions between Python values and JSON, prompts, token ids and arrays.
#include <nanobind/ndarray.h>

#include <climits>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/bindings.h"

namespace lmdeploy::python {
namespace {

constexpr int kMaxDepth = 256;  // as parse_json()

struct TooDeep {};

[[noreturn]] void throw_bad_value(const std::string& where, nb::handle value, std::string_view expected) {
  throw Error(ErrorCode::kInvalidArgument,
              cat(where, ": expected ", expected, ", found ", type_name_of(value)));
}

/// The double whose shortest spelling is the integer `value`: 10**45, but not 10**45 + 1.
std::optional<double> double_that_spells(nb::handle value) {
  const double nearest = PyLong_AsDouble(value.ptr());
  if (PyErr_Occurred() != nullptr) {  // beyond 1.8e308
    PyErr_Clear();
    return std::nullopt;
  }
  const nb::object spelled = nb::module_::import_("decimal").attr("Decimal")(nb::repr(nb::float_(nearest)));
  return spelled.equal(value) ? std::optional(nearest) : std::nullopt;
}

class Converter {
 public:
  explicit Converter(bool wide_integers) : wide_integers_(wide_integers) {}
  Json convert(nb::handle value, const std::string& where, int depth) const;

 private:
  Json convert_dict(nb::handle value, const std::string& where, int depth) const;
  Json convert_sequence(nb::handle value, const std::string& where, int depth) const;
  Json convert_int(nb::handle value, const std::string& where) const;

  const bool wide_integers_;
};

Json Converter::convert_dict(nb::handle value, const std::string& where, int depth) const {
  JsonObject object;
  for (auto [key, item] : nb::borrow<nb::dict>(value)) {
    if (!nb::isinstance<nb::str>(key)) throw_bad_value(cat(where, ", a key"), key, "str");
    const std::string name = utf8_from_python(key, cat(where, ", a key"));
    object[name] = convert(item, cat(where, ".", name), depth + 1);
  }
  return object;
}

Json Converter::convert_sequence(nb::handle value, const std::string& where, int depth) const {
  JsonArray array;
  for (nb::handle item : value) {
    array.push_back(convert(item, cat(where, "[", array.size(), "]"), depth + 1));
  }
  return array;
}

Json Converter::convert_int(nb::handle value, const std::string& where) const {
  int overflow = 0;
  const long long signed_value = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) return static_cast<int64_t>(signed_value);
  const unsigned long long unsigned_value = PyLong_AsUnsignedLongLong(value.ptr());
  if (overflow < 0 || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    if (!wide_integers_)
      throw Error(ErrorCode::kInvalidArgument, cat(where, ": the integer does not fit into 64 bits"));
    if (const auto number = double_that_spells(value)) return *number;
    throw Error(
        ErrorCode::kInvalidArgument,
        cat(where,
            ": found an integer of more than 64 bits that no double spells exactly; expected a rounder "
            "one, such as 10**30"));
  }
  return static_cast<uint64_t>(unsigned_value);
}

Json Converter::convert(nb::handle value, const std::string& where, int depth) const {
  if (depth > kMaxDepth) throw TooDeep();
  if (value.is_none()) return nullptr;
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value);
  if (nb::isinstance<nb::int_>(value)) return convert_int(value, where);
  if (nb::isinstance<nb::float_>(value)) return nb::cast<double>(value);
  if (nb::isinstance<nb::str>(value)) return boost::json::string(utf8_from_python(value, where));
  if (nb::isinstance<nb::dict>(value)) return convert_dict(value, where, depth);
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    return convert_sequence(value, where, depth);
  }
  throw_bad_value(where, value, "None, bool, int, float, str, dict, list or tuple");
}

Json json_of(nb::handle value, const std::string& where, bool wide_integers) {
  try {
    return Converter(wide_integers).convert(value, where, 0);
  } catch (const TooDeep&) {
    throw Error(ErrorCode::kInvalidArgument,
                cat(where, ": nested deeper than ", kMaxDepth, " levels, or inside itself"));
  }
}

}  // namespace

Json json_from_python(nb::handle value, const std::string& where) { return json_of(value, where, false); }

Json format_from_python(nb::handle value, const std::string& where) { return json_of(value, where, true); }

std::string utf8_from_python(nb::handle text, const std::string& where) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data != nullptr) return {data, static_cast<size_t>(size)};
  if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  throw Error(ErrorCode::kInvalidArgument,
              cat(where, ": the text holds a lone surrogate; expected text that UTF-8 can write"));
}

std::string printable(nb::handle text) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  if (bytes.is_valid())
    return {PyBytes_AS_STRING(bytes.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
  PyErr_Clear();
  return "?";
}

std::string type_name_of(nb::handle value) { return printable(nb::type_name(value.type())); }

std::vector<int> ids_from_python(nb::handle ids, const std::string& where) {
  if (PySequence_Check(ids.ptr()) == 0 || nb::isinstance<nb::str>(ids) || nb::isinstance<nb::bytes>(ids)) {
    throw_bad_value(where, ids, "a sequence of token ids");
  }
  std::vector<int> result;
  for (nb::handle item : ids) {
    const nb::object number = nb::steal(PyNumber_Index(item.ptr()));  // int, or a numpy integer
    if (!number.is_valid()) {
      PyErr_Clear();
      throw_bad_value(cat(where, "[", result.size(), "]"), item, "int");
    }
    int overflow = 0;
    const long id = PyLong_AsLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0 || id < INT_MIN || id > INT_MAX) {
      throw Error(ErrorCode::kInvalidArgument,
                  cat(where, "[", result.size(), "]: no token id is that large"));
    }
    result.push_back(static_cast<int>(id));
  }
  return result;
}

Prompt prompt_from_python(nb::handle prompt, const std::string& where) {
  if (nb::isinstance<nb::str>(prompt)) return utf8_from_python(prompt, where);
  if (PySequence_Check(prompt.ptr()) != 0 && nb::len(prompt) > 0) {
    const nb::object first = prompt[0];
    if (PyIndex_Check(first.ptr()) != 0) return ids_from_python(prompt, "prompt");
  }
  return json_from_python(prompt, where);
}

nb::object rows_to_numpy(std::vector<float>&& values, int64_t width) {
  if (values.empty() || width <= 0) return nb::none();
  auto owned = std::make_unique<std::vector<float>>(std::move(values));
  float* data = owned->data();
  const size_t rows = owned->size() / static_cast<size_t>(width);
  const nb::capsule owner(owned.release(),
                          [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return nb::cast(
      nb::ndarray<nb::numpy, float, nb::ndim<2>>(data, {rows, static_cast<size_t>(width)}, owner));
}

}  // namespace lmdeploy::python
