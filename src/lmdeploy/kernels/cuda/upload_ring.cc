// A slot is free again when its copy is done.
#include "lmdeploy/kernels/cuda/upload_ring.h"

#include <cstring>

#include "lmdeploy/kernels/cuda/cuda_check.h"
#include "lmdeploy/kernels/cuda/device.h"

namespace lmdeploy::cuda {

UploadRing::UploadRing() {
  for (Slot& slot : slots_)
    check(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming), "make an event");
}

UploadRing::~UploadRing() {
  for (const Slot& slot : slots_) cudaEventDestroy(slot.copied);
}

void UploadRing::copy(std::byte* device, const std::byte* host, size_t bytes, cudaStream_t stream) {
  Slot& slot = slots_[next_];
  next_ = (next_ + 1) % slots_.size();
  check(cudaEventSynchronize(slot.copied), "wait for a copy to the device");
  if (slot.bytes.size() < bytes) slot.bytes = Buffer(2 * bytes, pinned_allocator());
  std::memcpy(slot.bytes.data(), host, bytes);
  check(cudaMemcpyAsync(device, slot.bytes.data(), bytes, cudaMemcpyHostToDevice, stream),
        "copy to the device");
  check(cudaEventRecord(slot.copied, stream), "mark a copy to the device");
}

}  // namespace lmdeploy::cuda
