// What the tests of this room share: files that clean up, the golden tensors, errors as values.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// A folder of its own for one test, removed at the end.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = testing::TempDir() + "formats_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) throw Error(ErrorCode::kIo, cat("mkdtemp ", pattern));
    path_ = pattern;
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(std::string_view name) const { return (path_ / name).string(); }
  /// Returns the path.
  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(file(name), std::ios::binary) << bytes;
    return file(name);
  }

 private:
  std::filesystem::path path_;
};

/// The message of the Error that `call` throws; a failed test when it throws none or another code.
template <typename Call>
std::string error_of(ErrorCode code, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(to_string(error.code()), to_string(code)) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }
/// EXPECT that `text` has `part`, showing both.
#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(::lmdeploy::contains, text, part)

/// A file of tests/data/formats, or a path in it.
inline std::string golden_path(std::string_view name) {
  return cat(LMDEPLOY_SOURCE_DIR "/tests/data/formats/", name);
}

/// The bytes that make_golden.py gives to tensor number `tensor`.
inline Tensor golden_tensor(DType dtype, const Shape& shape, int tensor) {
  Tensor out(dtype, shape);
  for (size_t i = 0; i < out.bytes(); ++i)
    out.view().data()[i] = static_cast<std::byte>((31 * i + 17 * static_cast<size_t>(tensor) + 7) % 251);
  return out;
}

/// The packed bytes of a contiguous tensor.
inline std::string bytes_of(ConstTensorView tensor) {
  const auto size = static_cast<size_t>(tensor.rows() * row_bytes(tensor.dtype(), tensor.cols()));
  return {reinterpret_cast<const char*>(tensor.data()), size};
}

/// `value` as it lies in a little-endian file.
template <typename T>
std::string raw(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

}  // namespace lmdeploy
