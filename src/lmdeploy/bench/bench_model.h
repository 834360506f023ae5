// Random models on a device, for benchmarks of whole steps and of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/bench/step_limits.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// What models are measured on. All must outlive those who have it.
struct BenchDevice {
  std::vector<const Kernels*> ranks;                // one device, or several that share each model
  RankOptions meeting = {};                         // of several
  std::function<void()> wait;                       // until the first device has nothing to do
  std::function<size_t()> free_bytes;               // of each device's memory
  std::function<DeviceRates(DType weights)> rates;  // the ceilings of all for weights of that kind

  int64_t count() const { return static_cast<int64_t>(ranks.size()); }
};

/// A model with random weights from a seed.
class BenchModel {
 public:
  static constexpr int64_t kBlockLen = 64;        // tokens of the KV cache
  static constexpr int64_t kMostBatch = 1024;     // sequences in a step
  static constexpr int64_t kPromptTokens = 8192;  // in a step, besides those of that many sequences

  /// Whether its weights and buffers fit; else why not. Throws Error for an unknown shape.
  static std::string why_not(const std::string& shape, DType weights, const BenchDevice& device);

  /// Throws Error where it does not load.
  BenchModel(const std::string& shape, DType weights, const BenchDevice& device);

  const std::string& shape() const { return shape_; }
  DType weights() const { return weights_; }
  Model& model() const { return *model_; }
  /// Of the first device.
  const Kernels& kernels() const { return *device_.ranks[0]; }
  void wait() const { device_.wait(); }
  const DeviceRates& rates() const { return rates_; }
  double loading_s() const { return loading_s_; }

  /// Blocks of the KV cache for so many sequences of so many tokens.
  int64_t num_blocks(int64_t sequences, int64_t tokens) const;
  int64_t cache_bytes(int64_t blocks, DType kv_dtype) const;
  /// "" where a cache of that size fits beside the model, else why not.
  std::string why_no_cache(int64_t bytes) const;

 private:
  const std::string shape_;
  const DType weights_;
  const BenchDevice device_;
  const DeviceRates rates_;
  double loading_s_ = 0;
  std::unique_ptr<Model> model_;
};

}  // namespace lmdeploy
