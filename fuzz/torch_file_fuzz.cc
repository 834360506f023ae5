// torch.save files: either an Error, or tensors whose every element can be read.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/tensor_bytes.h"
#include "lmdeploy/formats/torch/torch_file.h"

namespace {
volatile uint8_t sink;  // keeps the reads
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    for (const auto& tensor :
         lmdeploy::parse_torch({reinterpret_cast<const std::byte*>(data), size}, "input")) {
      for (const std::byte byte : tensor.stored) sink = static_cast<uint8_t>(byte);
      if (tensor.strides.empty()) continue;
      std::vector<std::byte> out(
          static_cast<size_t>(tensor.shape.numel() * lmdeploy::block_bytes(tensor.dtype)));
      lmdeploy::copy_strided(tensor.stored, tensor.dtype, tensor.shape, tensor.strides, out.data());
    }
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
