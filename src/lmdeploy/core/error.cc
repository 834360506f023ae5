#include "lmdeploy/core/error.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

namespace lmdeploy {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kInvalidData:
      return "invalid_data";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kResourceExhausted:
      return "resource_exhausted";
    case ErrorCode::kBusy:
      return "busy";
    case ErrorCode::kClosed:
      return "closed";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

std::string describe(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return "out of memory";
  const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  return file == nullptr ? error.what() : cat(file->path1().string(), ": ", file->code().message());
}

ErrorCode code_of(const std::exception& error) {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->code();
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? ErrorCode::kResourceExhausted
                                                                : ErrorCode::kInternal;
}

namespace detail {
namespace {
template <typename T>
void append_number(std::string& out, T value) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  out.append(buffer, result.ptr);
}
}  // namespace

void append(std::string& out, std::string_view text) { out.append(text); }
void append(std::string& out, double value) { append_number(out, value); }
void append(std::string& out, int64_t value) { append_number(out, value); }
void append(std::string& out, uint64_t value) { append_number(out, value); }

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: check failed: %s%s%s\n", file, line, condition, values.empty() ? "" : ": ",
               values.c_str());
  std::abort();
}
}  // namespace detail

}  // namespace lmdeploy
