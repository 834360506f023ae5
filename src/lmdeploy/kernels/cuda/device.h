// Device memory, and which devices there are.
#pragma once

#include <cstdint>

#include "lmdeploy/core/allocator.h"

namespace lmdeploy::cuda {

/// What the driver chose to run of a program's code for several kinds of devices.
struct DeviceCode {
  int major = 0;           // compute capability that it was compiled for, at most the device's
  bool has_wgmma = false;  // compiled for sm_90a
};
/// Found out by running some of it, once. Throws Error where none suits the device.
DeviceCode device_code();

/// cudaMalloc and cudaFree. Thread-safe; lives as long as the program.
Allocator& device_allocator();

/// Host memory that the device writes to directly. Slow to get: for large buffers that stay.
Allocator& pinned_allocator();

/// Memory that an op uses while it runs. Ops run one after the other, so that one serves all of a back end.
class Scratch {
 public:
  /// Valid until the next call.
  std::byte* bytes(int64_t count);
  /// Rises when the memory moves.
  int64_t version() const { return version_; }

 private:
  Buffer buffer_;
  int64_t version_ = 0;
};

}  // namespace lmdeploy::cuda
