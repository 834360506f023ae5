// A cursor over bytes from outside: every read is checked against what is left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

/// Little-endian numbers. `where` begins every message and must outlive the reader.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string_view where) : bytes_(bytes), where_(where) {}

  template <typename T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  /// The next `count` bytes. Throws Error(kInvalidData) saying what they should have been.
  std::span<const std::byte> take(uint64_t count, std::string_view what) {
    if (count > remaining())
      throw Error(ErrorCode::kInvalidData, cat(where_, ": ", what, " at byte ", position_, " needs ", count,
                                               " bytes, the file has ", remaining(), " more"));
    const auto out = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return out;
  }
  size_t position() const { return position_; }
  size_t remaining() const { return bytes_.size() - position_; }

 private:
  std::span<const std::byte> bytes_;
  std::string_view where_;
  size_t position_ = 0;
};

}  // namespace lmdeploy
