// The memory of all blocks, and how much of it there is.
#pragma once

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
  KvPool(const KvLayout& layout, int64_t num_blocks, Allocator& allocator);
  KvCacheView view() const { return {layout_, buffer_.data(), num_blocks_}; }

 private:
  KvLayout layout_;
  int64_t num_blocks_;
  Buffer buffer_;
};

}  // namespace lmdeploy
