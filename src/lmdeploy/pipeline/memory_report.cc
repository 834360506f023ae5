#include "lmdeploy/pipeline/memory_report.h"

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr int kKiB = 10, kMiB = 20;

std::string size_rule(double cache_max_entry_count) {
  if (cache_max_entry_count == 0) return "its size by max_batch_size";
  if (cache_max_entry_count < 1) return cat("a share of ", cache_max_entry_count, " of that");
  return "a given number of blocks";
}

}  // namespace

std::string to_string(const KvPoolReport& r) {
  const int64_t tokens = r.num_blocks * r.block_len / r.num_groups;
  return cat("KV cache: ", r.free_bytes >> kMiB, " MiB free after weights and work space, ",
             size_rule(r.cache_max_entry_count), ": ", r.num_blocks, " blocks of ", r.block_bytes >> kKiB,
             " KiB, ", tokens, " tokens",
             r.num_groups > 1 ? cat(" in ", r.num_groups, " groups of layers") : "",
             "; max concurrency at session_len ", r.session_len, ": ", r.num_blocks / r.session_blocks,
             " (max_batch_size ", r.max_batch_size, ")");
}

}  // namespace lmdeploy
