// Random tiny checkpoints of the Llama family, in memory and as files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy::testing {

/// A checkpoint whose tensors can be changed at will.
class MemoryCheckpoint final : public Checkpoint {
 public:
  MemoryCheckpoint();
  ConstTensorView tensor(size_t index) const override { return tensors_in_memory_[index]; }
  void drop(size_t index) const override { ++drops_[index]; }

  JsonObject& mutable_config() { return config_.as_object(); }
  void add(const std::string& name, Tensor tensor);
  void remove(std::string_view name);
  /// Says that the columns of this matrix are in reverse order.
  void order_columns(std::string_view name);
  const std::vector<int>& drops() const { return drops_; }
  /// Writes config.json and model.safetensors into an existing folder.
  void save(const std::string& folder) const;

 private:
  std::vector<Tensor> tensors_in_memory_;
  mutable std::vector<int> drops_;
};

struct LlamaShape {
  int64_t hidden = 48, inner = 80, layers = 2, heads = 3, kv_heads = 3, head_dim = 16, vocab = 67;
  bool attention_bias = false, mlp_bias = false, tied = false;
  DType dtype = DType::kF32;  // of all tensors
};
std::string to_string(const LlamaShape& shape);

/// Weights whose outputs keep the size of their inputs, biases and norms that matter, logits of a few units.
MemoryCheckpoint make_random_llama(const LlamaShape& shape, uint64_t seed);

/// The same model as llama.cpp's converter writes it: its names, q and k rows reordered for interleaved rope
/// pairs, llama3 rope scaling as a tensor of factors.
void write_llama_gguf(const std::string& path, const MemoryCheckpoint& checkpoint);

std::vector<int> random_ids(uint64_t seed, int64_t count, int64_t vocab);

/// A folder that is removed with everything in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace lmdeploy::testing
