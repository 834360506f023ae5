// Memory of one page size, to be read by all threads of a pool.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lmdeploy/core/thread_pool.h"

namespace lmdeploy {

enum class Pages { kSmall, kHuge };

class MemoryReader {
 public:
  /// Every byte has been written. Throws Error(kResourceExhausted).
  MemoryReader(int64_t bytes, Pages pages);
  ~MemoryReader();
  MemoryReader(const MemoryReader&) = delete;
  MemoryReader& operator=(const MemoryReader&) = delete;

  /// Bytes a second that the threads together read once, each its share in `streams` runs at a time.
  double read(ThreadPool& threads, int64_t streams) const;
  /// Of the memory, what the system gave in huge pages; nothing where it does not say.
  int64_t huge_bytes() const { return huge_bytes_; }
  const std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  int64_t bytes_;
  std::byte* data_;
  int64_t huge_bytes_ = 0;
};

}  // namespace lmdeploy
