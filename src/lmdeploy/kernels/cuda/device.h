// Device memory, and which devices there are.
#pragma once

#include <cstdint>

#include "lmdeploy/core/allocator.h"

namespace lmdeploy::cuda {

/// cudaMalloc and cudaFree. Thread-safe; lives as long as the program.
Allocator& device_allocator();

/// Memory that an op uses while it runs. Ops run one after the other, so that one serves all of a back end.
class Scratch {
 public:
  /// Valid until the next call.
  std::byte* bytes(int64_t count);

 private:
  Buffer buffer_;
};

}  // namespace lmdeploy::cuda
