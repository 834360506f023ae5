// Native errors become the exception classes of lmdeploy.errors, by their code.
#include <exception>

#include "bindings/bindings.h"

namespace lmdeploy::python {
namespace {

/// The class for `code`: lmdeploy.errors.BY_CODE holds one for every ErrorCode.
nb::object exception_class(ErrorCode code) {
  const nb::object table = nb::module_::import_("lmdeploy.errors").attr("BY_CODE");
  const std::string_view name = to_string(code);
  return table[nb::str(name.data(), name.size())];
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object type = exception_class(error.code());
    const std::string message = error.what();
    const nb::object text =
        nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
    PyErr_SetObject(type.ptr(), text.ptr());
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace lmdeploy::python
