// Quantised checkpoints: a safetensors file, whose "__metadata__" may have a "config", is opened and every
// tensor dequantised. Either an Error, or tensors of the size that their shape gives.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/formats/quant/quantized_checkpoint.h"
#include "lmdeploy/formats/safetensors.h"

namespace {

volatile float sink;  // keeps the reads

class MemoryCheckpoint : public lmdeploy::Checkpoint {
 public:
  explicit MemoryCheckpoint(lmdeploy::SafetensorsContent content) : content_(std::move(content)) {
    path_ = config_path_ = "memory";
    config_ = lmdeploy::JsonObject();
    for (const auto& [key, value] : content_.metadata)
      if (key == "config") config_ = lmdeploy::parse_json(value, "config");
    for (const auto& tensor : content_.tensors) {
      tensors_.push_back({tensor.name, tensor.dtype, tensor.shape, "memory", tensor.name});
      copies_.emplace_back(tensor.dtype, tensor.shape);
      for (size_t i = 0; i < tensor.bytes; ++i) copies_.back().view().data()[i] = tensor.data[i];
    }
  }
  lmdeploy::ConstTensorView tensor(size_t index) const override { return copies_[index]; }
  void drop(size_t) const override {}

 private:
  lmdeploy::SafetensorsContent content_;
  std::vector<lmdeploy::Tensor> copies_;  // aligned, and with guards around them under a sanitizer
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    auto content = lmdeploy::parse_safetensors({reinterpret_cast<const std::byte*>(data), size}, "input");
    const auto checkpoint = lmdeploy::dequantized(std::make_unique<MemoryCheckpoint>(std::move(content)), "");
    for (size_t i = 0; i < checkpoint->tensors().size(); ++i) {
      if (checkpoint->tensors()[i].dtype != lmdeploy::DType::kF32) continue;
      const lmdeploy::ConstTensorView view = checkpoint->tensor(i);
      for (int64_t r = 0; r < view.rows(); ++r) sink = view.row<float>(r)[view.cols() - 1];
      checkpoint->drop(i);
    }
  } catch (const lmdeploy::Error&) {
  }
  return 0;
}
