#include "lmdeploy/kernels/device_support.h"

#include <string_view>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

std::string device_problem(const CudaDevice& device) {
  constexpr std::pair<int, int> kLeast = {7, 5};  // what CUDA 13 compiles for
  const std::pair<int, int> capability = {device.major, device.minor};
  if (capability >= kLeast) return "";
  // CUDA 13 dropped cards below 7.5, CUDA 12 those below 5.0.
  const std::string_view last = device.major >= 5 ? "12.9" : "11.8";
  return cat(device.name, " has compute capability ", device.major, ".", device.minor, ", at least ",
             kLeast.first, ".", kLeast.second, " is needed: this program is built with CUDA 13, and CUDA ",
             last, " is the last release that builds for this card");
}

std::string out_of_device_memory(size_t asked_bytes, size_t free_bytes, size_t total_bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  const auto up = [](size_t bytes) { return (bytes + kMiB - 1) / kMiB; };
  std::string text = cat("out of GPU memory: ", up(asked_bytes), " MiB asked for, ", free_bytes / kMiB,
                         " of ", total_bytes / kMiB, " MiB are free");
  if (asked_bytes > free_bytes) text += cat(", ", up(asked_bytes - free_bytes), " MiB are missing");
  return text;
}

std::string advice_for_ranks(bool nccl, bool through_host) {
  if (nccl)
    return "; try communicator cuda-ipc or host instead of nccl, NCCL_P2P_DISABLE=1 in the environment, or "
           "tp 1";
  if (through_host) return "; try tp 1";
  return "; try communicator host (--communicator host), with which no GPU reads another's memory, or tp 1";
}

}  // namespace lmdeploy
