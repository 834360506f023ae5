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
            const nb::gil_scoped_acquire acquire;
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
  if (nb::cast<std::string>(array.attr("dtype").attr("kind")) == "c")
    throw Error(ErrorCode::kInvalidArgument, "returned complex numbers; expected the scores");
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
    if (view.data() != values.data() || view.size() != values.size()) {
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

std::string words_of(nb::python_error& error) {
  const nb::object type = nb::borrow(error.type());
  const nb::object text = nb::steal(PyObject_Str(error.value().ptr()));
  if (!text.is_valid()) PyErr_Clear();
  return cat(nb::cast<std::string>(type.attr("__name__")), ": ",
             text.is_valid() ? utf8_from_python(text, "exception") : "");
}

LogitsProcessor processor_of(nb::handle callable, size_t index) {
  return [held = hold(callable), index](std::span<const int> tokens, std::vector<float>& logits) {
    const nb::gil_scoped_acquire acquire;
    const auto fail = [&](const std::string& words) {
      throw Error(ErrorCode::kInvalidArgument, cat("logits_processors[", index, "]: ", words));
    };
    try {
      call(*held, tokens, logits);
    } catch (nb::python_error& error) {
      LMD_LOG(kWarning, "logits_processors[", index, "] failed: ", error.what());
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
