#include "lmdeploy/bench/bench_model.h"

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr uint64_t kSeed = 1;
// For what is not counted: buffers of steps with a model, recordings and scratch memory with a cache.
constexpr int64_t kModelSpare = int64_t{3} << 30, kCacheSpare = int64_t{2} << 30;

std::string too_large(std::string_view what, int64_t bytes, int64_t free) {
  return cat(what, " of ", bytes_text(static_cast<double>(bytes)), " in ",
             bytes_text(static_cast<double>(free)), " of free memory");
}

std::string why_not_in(const BenchDevice& device, std::string_view what, int64_t bytes, int64_t spare) {
  const auto free = static_cast<int64_t>(device.free_bytes());
  return bytes + spare <= free ? "" : too_large(what, bytes, free);
}

}  // namespace

std::string BenchModel::why_not(const std::string& shape, DType weights, const BenchDevice& device) {
  const auto checkpoint = make_random_checkpoint(shape, weights, kSeed);
  int64_t bytes = 0;
  for (const TensorInfo& tensor : checkpoint->tensors())
    bytes += row_bytes(tensor.dtype, tensor.shape.numel());
  return why_not_in(device, "weights", bytes / device.count(), kModelSpare);
}

BenchModel::BenchModel(const std::string& shape, DType weights, const BenchDevice& device)
    : shape_(shape), weights_(weights), device_(device), rates_(device.rates(weights)) {
  loading_s_ = seconds_of([&] {
    const auto checkpoint = make_random_checkpoint(shape, weights, kSeed);
    const LoadOptions options = {.max_step_tokens = kPromptTokens + kMostBatch, .max_logit_rows = kMostBatch};
    model_ = device.count() == 1 ? load_model(*checkpoint, kernels(), options)
                                 : load_model(*checkpoint, device.ranks,
                                              make_cuda_rank_group(device.ranks, device.meeting), options);
    device.wait();
  });
}

int64_t BenchModel::num_blocks(int64_t sequences, int64_t tokens) const {
  const auto groups = static_cast<int64_t>(model_->kv_groups().size());
  return sequences * groups * ((tokens + kBlockLen - 1) / kBlockLen);
}

int64_t BenchModel::cache_bytes(int64_t blocks, DType kv_dtype) const {
  return blocks * model_->kv_layout(kv_dtype, kBlockLen).block_bytes();
}

std::string BenchModel::why_no_cache(int64_t bytes) const {
  return why_not_in(device_, "a KV cache", bytes, kCacheSpare);
}

}  // namespace lmdeploy
