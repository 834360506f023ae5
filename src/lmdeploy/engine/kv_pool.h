// The memory of all blocks, and how much of it there is.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lmdeploy/core/allocator.h"
#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/engine.h"

namespace lmdeploy {

/// The config as it takes effect with `model`: every field checked, defaults filled in, num_blocks chosen,
/// session_len cut to what the pool holds (with a warning naming both). `available_bytes` is the memory left
/// for a pool whose size the config does not give. `draft_model`: with SpeculativeMethod::kDraft. Throws
/// Error(kInvalidArgument) naming the field.
EngineConfig resolve_config(EngineConfig config, const Model& model, size_t available_bytes,
                            const Model* draft_model = nullptr);

class KvPool {
 public:
  /// In the memory of `kernels`, and of the model's other ranks where it is sharded.
  KvPool(const Model& model, const KvLayout& layout, int64_t num_blocks, const Kernels& kernels);
  KvCacheView view() const { return {layout_, buffer_.data(), num_blocks_}; }
  /// See StepInput.
  std::span<std::byte* const> other_caches() const { return other_caches_; }

 private:
  KvLayout layout_;
  int64_t num_blocks_;
  Buffer buffer_;
  std::vector<Buffer> other_buffers_;  // of the ranks after the first
  std::vector<std::byte*> other_caches_;
};

}  // namespace lmdeploy
