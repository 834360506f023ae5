// Copies to the device that do not wait for what it is doing.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>

#include "lmdeploy/core/allocator.h"

namespace lmdeploy::cuda {

/// Pinned memory on the way to the device: from other memory the driver may wait for the stream before it
/// copies. One thread. Of the device that is current when it is made.
class UploadRing {
 public:
  static constexpr size_t kMostBytes = size_t{4} << 20;  // of a copy

  UploadRing();
  UploadRing(const UploadRing&) = delete;
  UploadRing& operator=(const UploadRing&) = delete;
  ~UploadRing();

  /// `host` may change after the call.
  void copy(std::byte* device, const std::byte* host, size_t bytes, cudaStream_t stream);

 private:
  struct Slot {
    Buffer bytes;
    cudaEvent_t copied = nullptr;  // done while nothing has been
  };
  std::array<Slot, 4> slots_;  // more than are on their way when a step is prepared during another
  size_t next_ = 0;
};

}  // namespace lmdeploy::cuda
