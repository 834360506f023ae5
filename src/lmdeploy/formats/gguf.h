// GGUF v2/v3 files: metadata and tensors, checked before anything is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Integers of any width are int64; only a uint64 above its range stays uint64. Arrays of numbers are widened
/// to int64 or double; strings point into the mapped file (which need not be UTF-8).
using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, std::vector<bool>,
                               std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;
/// "an integer", "an array of strings", ...: for messages.
std::string_view gguf_kind(const GgufValue& value);

struct GgufTensor {
  std::string_view name;
  DType dtype = DType::kF32;
  Shape shape;                      // outermost first (the file stores it innermost first)
  const std::byte* data = nullptr;  // aligned as the file says, at least to 8 bytes
  size_t bytes = 0;
};

struct GgufContent {
  std::vector<std::pair<std::string_view, GgufValue>> metadata;  // in file order
  std::vector<GgufTensor> tensors;

  /// nullptr when the key is absent.
  const GgufValue* find(std::string_view key) const;
};

/// Reads a whole file from memory; `where` (its path) begins every message. Names, strings and tensors point
/// into `bytes`. Throws Error(kInvalidData) or Error(kUnsupported) naming the key or tensor.
GgufContent parse_gguf(std::span<const std::byte> bytes, std::string_view where);

/// Read-only; thread-safe. Throws Error(kInvalidData | kUnsupported) naming file, key or tensor.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// nullptr when the key is absent.
  const GgufValue* find(std::string_view key) const { return content_.find(key); }
  /// Absent: nothing / fallback. Another type than asked for: Error(kInvalidData).
  std::string_view get_string(std::string_view key, std::string_view fallback = {}) const;
  int64_t get_int(std::string_view key, int64_t fallback) const;
  double get_double(std::string_view key, double fallback) const;
  bool get_bool(std::string_view key, bool fallback) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return content_.metadata; }
  const std::vector<GgufTensor>& tensors() const { return content_.tensors; }
  const GgufContent& content() const { return content_; }
  const MappedFile& file() const { return file_; }

 private:
  MappedFile file_;
  GgufContent content_;
};

/// Types of metadata values, by their number in the file.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

/// One metadata entry to write. Readers elsewhere insist on exact types (llama.cpp: counts are u32), so it is
/// said.
struct GgufItem {
  std::string key;
  GgufType type;  // of the value; of the elements when the value is an array
  GgufValue value;
};

struct GgufNamedTensor {
  std::string name;
  ConstTensorView tensor;
};

/// Writes a version 3 file with data aligned to 32 bytes, or to what `general.alignment` in `metadata` says.
/// Entries and tensors keep their order. The file appears under its name only when it is complete. Throws
/// Error(kInvalidArgument) for a value that does not fit its type or a name given twice, kUnsupported for a
/// dtype GGUF has no number for, kIo.
void write_gguf(const std::string& path, std::span<const GgufItem> metadata,
                std::span<const GgufNamedTensor> tensors);

}  // namespace lmdeploy
