// How memory was dealt out at the start, or why there is too little: in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// Of the GPU with the least free memory, where several share a model.
struct KvPoolReport {
  size_t free_bytes = 0;             // after weights, buffers and work space
  double cache_max_entry_count = 0;  // a share, a number of blocks, or 0: by max_batch_size
  int64_t num_blocks = 0;
  int64_t block_len = 0;  // tokens
  int64_t block_bytes = 0;
  int64_t num_groups = 1;  // of layers, each with blocks of its own
  int64_t session_len = 0;
  int64_t session_blocks = 0;  // of a sequence of session_len
  int64_t max_batch_size = 0;
};
std::string to_string(const KvPoolReport& report);

/// About what the weights of a checkpoint take, those of floats as `float_dtype`, or as they are.
size_t weight_bytes(const Checkpoint& checkpoint, std::optional<DType> float_dtype);

/// A model that does not fit. On GPUs that share it, of each.
struct LoadMemory {
  size_t weight_bytes = 0;  // of the whole model
  size_t free_bytes = 0;    // before loading, for one of those that share it
  int64_t num_sharing = 1;
  bool may_share = false;  // there is `tp` to raise
  int64_t max_prefill_token_num = 0, max_batch_size = 0;
};
/// What is missing, and what to change by how much: without the weights, or where they fit, without the
/// buffers.
std::string want_of_memory(const LoadMemory& memory);

}  // namespace lmdeploy
