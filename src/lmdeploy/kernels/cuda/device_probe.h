// What a device can do at most, measured: for benchmarks.
#pragma once

#include <cstdint>
#include <optional>

namespace lmdeploy::cuda {

/// Bytes a second that a kernel reads from device memory; the median of several runs. Reads of less than the
/// 4 GiB of which they take parts in turn follow each other in a graph, so that no part is in the cache and
/// start and end of a kernel count.
double measure_read_bandwidth(int64_t bytes = int64_t{4} << 30);
/// Bytes read and written a second, both counted, by a copy of 2 GiB within the device.
double measure_copy_bandwidth();
/// Floating-point operations a second of a bf16 matrix product of 8192 x 8192 x 8192 on random data, by
/// cuBLASLt.
double measure_bf16_product();
/// The same of e4m3 without scales, all bits of sums kept that there are, results in bf16; nothing where the
/// library has no algorithm for it.
std::optional<double> measure_fp8_product();
/// Seconds from one kernel to the next in a graph of kernels that do nothing, a block for each
/// multiprocessor. `overlap`: a kernel may start while the one before it ends (programmatic dependent
/// launch).
double measure_graph_gap(bool overlap);
/// Waits until the device has nothing to do.
void wait_for_device();

}  // namespace lmdeploy::cuda
