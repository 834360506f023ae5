// How memory was dealt out at the start, or why there is too little: in words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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

}  // namespace lmdeploy
