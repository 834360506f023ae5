// safetensors: either an Error, or tensors whose every byte can be read.
#include <cstddef>
#include <cstdint>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/safetensors.h"

namespace {
volatile uint8_t sink;  // keeps the reads
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto content =
        lmdeploy::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "input");
    for (const auto& tensor : content.tensors) {
      const lmdeploy::ConstTensorView view(tensor.data, tensor.dtype, tensor.shape);
      for (int64_t row = 0; row < view.rows(); ++row) sink = static_cast<uint8_t>(*view.row_data(row));
      if (tensor.bytes > 0) sink = static_cast<uint8_t>(tensor.data[tensor.bytes - 1]);
    }
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
