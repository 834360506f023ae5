#include "lmdeploy/formats/output_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

namespace fs = std::filesystem;

OutputFile::OutputFile(const std::string& path) : path_(path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (fs::is_directory(status)) throw Error(ErrorCode::kIo, cat("write ", path, ": ", std::strerror(EISDIR)));
  const bool replaced = !fs::exists(status) || fs::is_regular_file(status);
  // A pipe may have no name of its own: /dev/stdout is a link to "pipe:[4711]".
  if (replaced && fs::is_symlink(path, ignored)) path_ = fs::weakly_canonical(path).string();
  partial_ = replaced ? path_ + ".partial" : path_;
  if (replaced) open();  // opening a pipe would wait for its reader
}

OutputFile::~OutputFile() {
  if (!committed_ && partial_ != path_) std::remove(partial_.c_str());
}

void OutputFile::open() {
  stream_.open(partial_, std::ios::binary | std::ios::trunc);
  check();
}

void OutputFile::check() const {
  if (!stream_) throw Error(ErrorCode::kIo, cat("write ", partial_, ": ", std::strerror(errno)));
}

void OutputFile::write(std::string_view bytes) {
  if (!stream_.is_open()) open();
  stream_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  check();
  size_ += bytes.size();
}

void OutputFile::write(ConstTensorView tensor) {
  const size_t size = packed_bytes(tensor);
  if (size == 0) return;
  const int64_t num_rows = tensor.contiguous() ? 1 : tensor.rows();
  const size_t row_size = size / static_cast<size_t>(num_rows);
  for (int64_t row = 0; row < num_rows; ++row)
    write(std::string_view(reinterpret_cast<const char*>(tensor.row_data(row)), row_size));
}

void OutputFile::pad_to(size_t alignment, char fill) {
  write(std::string((alignment - size_ % alignment) % alignment, fill));
}

void OutputFile::commit() {
  stream_.close();
  check();
  if (partial_ != path_ && std::rename(partial_.c_str(), path_.c_str()) != 0)
    throw Error(ErrorCode::kIo, cat("rename ", partial_, " to ", path_, ": ", std::strerror(errno)));
  committed_ = true;
}

size_t packed_bytes(ConstTensorView tensor) {
  return static_cast<size_t>(tensor.rows() * row_bytes(tensor.dtype(), tensor.cols()));
}

}  // namespace lmdeploy
