// Device memory, and which devices there are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "lmdeploy/core/allocator.h"

namespace lmdeploy::cuda {

/// Devices of a machine that are used.
constexpr int kMostDevices = 16;

/// The calling thread's.
int current_device();

/// Makes a device the calling thread's current one for as long as it lives.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int previous_;
};

/// A value for each device, found out when it is first asked for. Thread-safe.
template <typename T>
class PerDevice {
 public:
  /// That of the current device.
  template <typename FindOut>
  T get(const FindOut& find_out) {
    const auto device = static_cast<size_t>(current_device());
    std::call_once(known_[device], [&] { values_[device] = find_out(); });
    return values_[device];
  }

 private:
  std::array<std::once_flag, kMostDevices> known_;
  std::array<T, kMostDevices> values_{};
};

/// What the driver chose to run of a program's code for several kinds of devices.
struct DeviceCode {
  int major = 0;           // compute capability that it was compiled for, at most the device's
  bool has_wgmma = false;  // compiled for sm_90a
};
/// Of the current device: found out by running some of it, once. Throws Error where none suits the device.
DeviceCode device_code();

/// cudaMalloc and cudaFree, on the current device. Thread-safe; lives as long as the program.
Allocator& device_allocator();
/// The same on a device of one's choice.
Allocator& device_allocator(int device);

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
