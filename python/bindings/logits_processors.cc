// Python callables as logits processors: on the engine's thread, with the GIL.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "lmdeploy/core/log.h"

namespace lmdeploy::python {
namespace {

/// The last holder lets go with the GIL, whatever its thread; after the interpreter's end nobody does.
std::shared_ptr<const nb::object> hold(nb::handle object) {
  return {new nb::object(nb::borrow(object)), [](const nb::object* held) {
            if (Py_IsInitialized() == 0) return;
            const GilAcquire acquire;
            delete held;
          }};
}

template <typename T>
nb::object array_over(std::vector<T>& values, nb::handle owner) {
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, owner));
}

template <typename T>
nb::capsule own(std::unique_ptr<std::vector<T>> values) {
  return nb::capsule(values.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
}

nb::object ids_array(std::span<const int> tokens) {
  auto ids = std::make_unique<std::vector<int64_t>>(tokens.begin(), tokens.end());
  std::vector<int64_t>& values = *ids;
  const nb::capsule owner = own(std::move(ids));
  return array_over(values, owner);
}

/// What the callable returned, as one row of float32; an array or tensor that is one already is not copied.
nb::object row_of(nb::handle result) {
  if (result.is_none()) throw Error(ErrorCode::kInvalidArgument, "returned None; expected the scores");
  const nb::module_ numpy = nb::module_::import_("numpy");
  const nb::object array = numpy.attr("asarray")(result);
  const nb::object dtype = array.attr("dtype");
  const auto kind = nb::cast<std::string>(dtype.attr("kind"));
  if (kind == "c") throw Error(ErrorCode::kInvalidArgument, "returned complex numbers; expected the scores");
  if (kind == "b")
    throw Error(ErrorCode::kInvalidArgument,
                cat("returned ", type_name_of(result), " of bool, a mask; expected the scores"));
  return numpy.attr("ascontiguousarray")(array, numpy.attr("float32")).attr("reshape")(-1);
}

/// The callable works on the values where they are. If nobody has kept the array, they come back without a
/// copy.
void call(const nb::object& callable, std::span<const int> tokens, std::vector<float>& logits) {
  auto moved = std::make_unique<std::vector<float>>(std::move(logits));
  std::vector<float>& values = *moved;
  const nb::capsule owner = own(std::move(moved));
  {
    const nb::object row = row_of(callable(ids_array(tokens), array_over(values, owner)));
    const auto view = nb::cast<nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(row);
    if (view.size() != values.size())
      throw Error(ErrorCode::kInvalidArgument,
                  cat("returned ", view.size(), " logits; expected ", values.size()));
    if (view.data() != values.data()) {
      logits.assign(view.data(), view.data() + view.size());
      return;
    }
  }
  const bool is_ours = Py_REFCNT(owner.ptr()) == 1;
  if (is_ours)
    logits = std::move(values);
  else
    logits = values;
}

/// The exception as "KeyError: its words".
std::string words_of(const nb::python_error& error) {
  const std::string_view name = reinterpret_cast<PyTypeObject*>(error.type().ptr())->tp_name;
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
  if (!text.is_valid()) PyErr_Clear();
  return cat(name.substr(name.rfind('.') + 1), ": ", text.is_valid() ? printable(text) : "");
}

/// The exception with its traceback, as Python prints it; python_error::what() cannot write lone surrogates.
std::string traceback_of(const nb::python_error& error) {
  try {
    const nb::object lines = nb::module_::import_("traceback").attr("format_exception")(error.value());
    return printable(nb::str("").attr("join")(lines));
  } catch (const nb::python_error&) {  // its __str__ fails in a way that traceback does not expect
    return words_of(error);
  }
}

LogitsProcessor processor_of(nb::handle callable, size_t index) {
  return [held = hold(callable), index](std::span<const int> tokens, std::vector<float>& logits) {
    const GilAcquire acquire;
    const auto fail = [&](const std::string& words) {
      throw Error(ErrorCode::kInvalidArgument, cat("logits_processors[", index, "]: ", words));
    };
    try {
      outlive_interpreter([&] { call(*held, tokens, logits); });
    } catch (const nb::python_error& error) {
      LMD_LOG(kWarning, "logits_processors[", index, "] failed: ", traceback_of(error));
      fail(words_of(error));
    } catch (const std::exception& error) {
      fail(error.what());
    }
  };
}

}  // namespace

std::vector<LogitsProcessor> processors_from_python(const nb::list& callables) {
  std::vector<LogitsProcessor> processors;
  for (nb::handle callable : callables) processors.push_back(processor_of(callable, processors.size()));
  return processors;
}

}  // namespace lmdeploy::python
