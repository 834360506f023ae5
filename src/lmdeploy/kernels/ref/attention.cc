// Reference of Kernels::attention: for each row and head all scores, their softmax, the weighted sum of V.
#include <algorithm>
#include <cmath>

#include "lmdeploy/core/half.h"
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
    return CachePlane(cache, blocks[position / block_len], layer, kv, head).at(position % block_len, d);
  }
};

double in_bf16(double value) { return to_float(to_bf16(static_cast<float>(value))); }

// What ALiBi adds to the score of the key at `j` for the row at `p`.
double alibi(const AttentionOptions& o, int64_t head, int64_t p, int64_t j) {
  if (!o.alibi_slopes) return 0;
  const double slope = o.alibi_slopes->at(head);
  if (o.alibi_in_bf16) return o.scale * in_bf16(in_bf16(slope) * in_bf16(static_cast<double>(j)));
  return slope * static_cast<double>(j - p);
}

// One query row `t` at position `p` and one query head.
void attend(TensorView out, ConstTensorView q, int64_t t, int64_t head, const Keys& keys, int64_t p,
            const AttentionOptions& o) {
  const int64_t head_dim = keys.cache.layout.head_dim, value_dim = keys.cache.layout.value_dim();
  const int64_t first = o.window > 0 ? std::max<int64_t>(0, p - o.window + 1) : 0;
  std::vector<double> weights, query;
  for (int64_t d = 0; d < head_dim; ++d) query.push_back(q.at(t, head * head_dim + d));
  turn_key<double>(query, keys.cache.layout.turned_run());
  double max = o.sinks ? o.sinks->at(head) : -HUGE_VAL;
  for (int64_t j = first; j <= p; ++j) {
    double score = 0;
    for (int64_t d = 0; d < head_dim; ++d) score += query[static_cast<size_t>(d)] * keys.at(0, j, d);
    score *= o.scale;
    if (o.soft_cap > 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
    weights.push_back(score + alibi(o, head, p, j));
    max = std::max(max, weights.back());
  }
  double sum = o.sinks ? std::exp(o.sinks->at(head) - max) : 0;
  for (double& w : weights) sum += w = std::exp(w - max);
  for (int64_t d = 0; d < value_dim; ++d) {
    double value = 0;
    for (int64_t j = first; j <= p; ++j) value += weights[static_cast<size_t>(j - first)] * keys.at(1, j, d);
    out.set(t, head * value_dim + d, value / sum);
  }
}

}  // namespace

void RefKernels::do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                              const AttentionBatch& batch, const AttentionOptions& options) const {
  checks::attention_values(cache, batch, q.rows(), options.window);
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
      attend(out, q, t, head, keys, kv_len - (end - t), options);
    });
  }
}

}  // namespace lmdeploy
