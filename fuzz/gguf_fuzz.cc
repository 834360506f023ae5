// GGUF: either an Error, or tensors whose every byte can be read and metadata that can be said as a config.
#include <cstddef>
#include <cstdint>

#include "lmdeploy/core/error.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/formats/gguf_hub.h"

namespace {
volatile uint8_t sink;  // keeps the reads
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto content = lmdeploy::parse_gguf({reinterpret_cast<const std::byte*>(data), size}, "input");
    for (const auto& tensor : content.tensors) {
      for (const char* architecture : {"llama", "deepseek2", "gpt2"})
        lmdeploy::hub_tensor_name(architecture, tensor.name);
      const lmdeploy::ConstTensorView view(tensor.data, tensor.dtype, tensor.shape);
      for (int64_t row = 0; row < view.rows(); ++row) sink = static_cast<uint8_t>(*view.row_data(row));
      if (tensor.bytes > 0) sink = static_cast<uint8_t>(tensor.data[tensor.bytes - 1]);
    }
    lmdeploy::to_json_text(lmdeploy::hub_config(content, "input"));
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
