// Where memory comes from: one interface for host and device memory, and a buffer that frees itself.
#pragma once

#include <cstddef>
#include <utility>

namespace lmdeploy {

class Allocator {
 public:
  virtual ~Allocator() = default;
  /// At least 64-byte aligned, uninitialised. Throws Error(kResourceExhausted) naming the size.
  virtual std::byte* allocate(size_t bytes) = 0;
  virtual void free(std::byte* data, size_t bytes) noexcept = 0;
};

/// Host memory by mmap for large sizes (2 MiB aligned, transparent huge pages asked for, pages touched on
/// first use) and aligned new for small ones. Thread-safe.
Allocator& host_allocator();

/// Owns `size()` bytes of one allocator. Moves only.
class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t bytes, Allocator& allocator)
      : data_(allocator.allocate(bytes)), bytes_(bytes), allocator_(&allocator) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) allocator_->free(data_, bytes_);
  }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(allocator_, other.allocator_);
  }
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  Allocator* allocator_ = nullptr;
};

}  // namespace lmdeploy
