// The one exception type, the one assertion, and cat(), which builds their messages.
#pragma once

#include <concepts>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace lmdeploy {

/// What went wrong, in the terms that the edges (HTTP, Python, exit codes) map from.
enum class ErrorCode {
  kInvalidArgument,    // a bad value from the caller: flag, parameter, request, prompt
  kInvalidData,        // a file's bytes are not what its format says
  kNotFound,           // no such file, model, tensor, session
  kUnsupported,        // understood, but not something this build or backend can do
  kResourceExhausted,  // memory, blocks or queue full
  kBusy,               // the same session is already running
  kClosed,             // the engine or pipeline has been closed
  kIo,                 // the operating system refused
  kInternal,           // our own fault
};

/// "invalid_argument", ...: stable names for logs and Python.
std::string_view to_string(ErrorCode code);

/// Thrown for bad files, configs, flags and requests. The message says what was being done, to which file,
/// tensor, parameter or request, what was found and what was expected.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

/// The words for a user: what() of an Error; of the standard library's own errors something that says more.
/// "out of memory" needs no memory.
std::string describe(const std::exception& error);
/// The code of an Error; of the standard library's own errors what they come to here.
ErrorCode code_of(const std::exception& error);

namespace detail {
void append(std::string& out, std::string_view text);
void append(std::string& out, double value);
void append(std::string& out, int64_t value);
void append(std::string& out, uint64_t value);
inline void append(std::string& out, bool value) { append(out, std::string_view(value ? "true" : "false")); }
inline void append(std::string& out, char value) { out.push_back(value); }

template <typename T>
void append_any(std::string& out, const T& value) {
  if constexpr (std::same_as<T, bool> || std::same_as<T, char>) {
    append(out, value);
  } else if constexpr (std::floating_point<T>) {
    append(out, static_cast<double>(value));
  } else if constexpr (std::signed_integral<T>) {
    append(out, static_cast<int64_t>(value));
  } else if constexpr (std::unsigned_integral<T>) {
    append(out, static_cast<uint64_t>(value));
  } else if constexpr (std::convertible_to<const T&, std::string_view>) {
    append(out, std::string_view(value));
  } else {
    append(out, std::string_view(to_string(value)));  // found by argument-dependent lookup
  }
}

[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& values);
}  // namespace detail

/// Joins its arguments into one string: cat("tensor \"", name, "\" has shape ", shape). Takes text, numbers,
/// bools, and any type with a to_string() in its own namespace.
template <typename... Args>
std::string cat(const Args&... args) {
  std::string out;
  (detail::append_any(out, args), ...);
  return out;
}

}  // namespace lmdeploy

/// Our own invariant: aborts with file, line and the values given. No file, flag or request may reach it.
#define LMD_CHECK(condition, ...)                                                                     \
  do {                                                                                                \
    if (!(condition)) [[unlikely]]                                                                    \
      ::lmdeploy::detail::check_failed(__FILE__, __LINE__, #condition, ::lmdeploy::cat(__VA_ARGS__)); \
  } while (false)
