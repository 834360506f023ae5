// Reference of Kernels::attention: for each row and head all scores, their softmax, the weighted sum of V.
#include <algorithm>
#include <cmath>

#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {
namespace {

// One query row's view of its sequence's keys or values for one kv head.
struct Keys {
  const KvCacheView& cache;
  const int32_t* blocks;  // of the sequence
  int64_t layer;
  int64_t head;  // kv head

  double at(int kv, int64_t position, int64_t d) const {
    const int64_t block_len = cache.layout.block_len;
    return cache_rows(cache, blocks[position / block_len], layer, kv, head).at(position % block_len, d);
  }
};

void attend(TensorView out, ConstTensorView q, int64_t t, int64_t first_col, const Keys& keys,
            int64_t num_keys, float scale) {
  const int64_t head_dim = keys.cache.layout.head_dim;
  std::vector<double> weights(static_cast<size_t>(num_keys));
  double max = -HUGE_VAL;
  for (int64_t j = 0; j < num_keys; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < head_dim; ++d) dot += q.at(t, first_col + d) * keys.at(0, j, d);
    weights[static_cast<size_t>(j)] = dot * scale;
    max = std::max(max, dot * scale);
  }
  double sum = 0;
  for (double& w : weights) sum += w = std::exp(w - max);
  for (int64_t d = 0; d < head_dim; ++d) {
    double value = 0;
    for (int64_t j = 0; j < num_keys; ++j) value += weights[static_cast<size_t>(j)] * keys.at(1, j, d);
    out.set(t, first_col + d, value / sum);
  }
}

}  // namespace

void RefKernels::do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                              const AttentionBatch& batch, AttentionOptions options) const {
  checks::attention_values(cache, batch, q.rows());
  const int64_t group = options.num_heads / cache.layout.num_kv_heads;
  const int32_t* query_start = batch.query_start.row<int32_t>(0);
  for (int64_t s = 0; s < batch.kv_len.cols(); ++s) {
    const int64_t begin = query_start[s];
    const int64_t end = query_start[s + 1];
    const auto kv_len = static_cast<int64_t>(batch.kv_len.at(s));
    const int32_t* blocks = batch.block_table.row<int32_t>(s);
    for_rows((end - begin) * options.num_heads, [&](int64_t i) {
      const int64_t t = begin + i / options.num_heads;
      const int64_t head = i % options.num_heads;
      const Keys keys = {cache, blocks, options.layer, head / group};
      attend(out, q, t, head * cache.layout.head_dim, keys, kv_len - (end - t) + 1, options.scale);
    });
  }
}

}  // namespace lmdeploy
