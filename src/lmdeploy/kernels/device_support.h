// What the CUDA back end says of devices and their memory; knows no CUDA, so that every build tests it.
#pragma once

#include <cstddef>
#include <string>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

/// Why the CUDA back end cannot use the device; "" if it can.
std::string device_problem(const CudaDevice& device);

/// Of an allocation that failed: what was asked for, what is free, and how much more there should be.
std::string out_of_device_memory(size_t asked_bytes, size_t free_bytes, size_t total_bytes);

/// RankGroup::what_to_try() of GPUs that add up by NCCL, and meet in host memory.
std::string advice_for_ranks(bool nccl, bool through_host);

}  // namespace lmdeploy
