// What a device can do at most, measured: for benchmarks.
#pragma once

namespace lmdeploy::cuda {

/// Bytes a second that a kernel reads from 4 GiB of device memory; the median of several runs.
double measure_read_bandwidth();
/// Floating-point operations a second of a bf16 matrix product of 8192 x 8192 x 8192 on random data, by
/// cuBLASLt.
double measure_bf16_product();
/// Waits until the device has nothing to do.
void wait_for_device();

}  // namespace lmdeploy::cuda
