#include "lmdeploy/pipeline/memory_report.h"

#include <algorithm>

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

size_t weight_bytes(const Checkpoint& checkpoint, std::optional<DType> float_dtype) {
  size_t sum = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const bool converted = float_dtype && is_float(tensor.dtype);
    const DType dtype = converted ? *float_dtype : tensor.dtype;
    if (tensor.shape.rank() > 0) sum += static_cast<size_t>(row_bytes(dtype, tensor.shape.numel()));
  }
  return sum;
}

std::string want_of_memory(const LoadMemory& m) {
  const auto sharing = static_cast<size_t>(m.num_sharing);
  const size_t own = (m.weight_bytes + sharing - 1) / sharing;
  const std::string weights =
      cat("the weights take about ", own >> kMiB, " MiB", m.num_sharing > 1 ? " on each GPU" : "");
  if (own <= m.free_bytes)
    return cat(weights, ", ", m.free_bytes >> kMiB, " MiB were free: the buffers find no room; lower ",
               "max_prefill_token_num (", m.max_prefill_token_num, ") or max_batch_size (", m.max_batch_size,
               ")");
  const size_t least = m.weight_bytes / std::max<size_t>(m.free_bytes, 1) + 1;
  const std::string share = m.may_share ? cat(", or tp ", least, " or more to share them among GPUs") : "";
  return cat(weights, ", ", m.free_bytes >> kMiB, " MiB were free: at least ",
             ((own - m.free_bytes) >> kMiB) + 1,
             " MiB are missing; use a checkpoint with weights of fewer bits", share);
}

}  // namespace lmdeploy
