// Native errors become the exception classes of lmdeploy.errors, by their code.
#include <exception>
#include <filesystem>
#include <new>
#include <stdexcept>

#include "bindings/bindings.h"

namespace lmdeploy::python {
namespace {

/// The class for `code`: lmdeploy.errors.BY_CODE holds one for every ErrorCode.
nb::object exception_class(ErrorCode code) {
  const nb::object table = nb::module_::import_("lmdeploy.errors").attr("BY_CODE");
  const std::string_view name = to_string(code);
  return table[nb::str(name.data(), name.size())];
}

void raise(ErrorCode code, std::string_view message) {
  const nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(message.data(), static_cast<Py_ssize_t>(message.size()), "replace"));
  PyErr_SetObject(exception_class(code).ptr(), text.ptr());
}

void translate(const std::exception_ptr& pointer, void*) {
  constexpr std::string_view kOutOfMemory = "out of memory: what was asked for does not fit";
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    raise(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    raise(ErrorCode::kResourceExhausted, kOutOfMemory);
  } catch (const std::length_error&) {  // a container that no memory could hold
    raise(ErrorCode::kResourceExhausted, kOutOfMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    raise(ErrorCode::kIo, describe(error));
  }
}

}  // namespace

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace lmdeploy::python
