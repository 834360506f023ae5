// Reference of Kernels::attention: for each row and head all scores, their softmax, the weighted sum of V.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "lmdeploy/core/half.h"
#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {
namespace {

// Keys and values of one sequence and kv head, from position `first` on, as numbers.
struct Rows {
  int64_t first, key_dim, value_dim;
  std::vector<double> keys, values;

  Rows(const KvCacheView& cache, const int32_t* blocks, int64_t layer, int64_t kv_head, int64_t from,
       int64_t end)
      : first(from), key_dim(cache.layout.head_dim), value_dim(cache.layout.value_dim()) {
    const int64_t block_len = cache.layout.block_len;
    for (int64_t j = first; j < end; ++j) {
      const int32_t block = blocks[j / block_len];
      const CachePlane k(cache, block, layer, 0, kv_head), v(cache, block, layer, 1, kv_head);
      for (int64_t d = 0; d < key_dim; ++d) keys.push_back(k.at(j % block_len, d));
      for (int64_t d = 0; d < value_dim; ++d) values.push_back(v.at(j % block_len, d));
    }
  }
  const double* key(int64_t position) const { return keys.data() + (position - first) * key_dim; }
  const double* value(int64_t position) const { return values.data() + (position - first) * value_dim; }
};

int64_t first_seen(int64_t p, const AttentionOptions& o) {
  return o.window > 0 ? std::max<int64_t>(0, p - o.window + 1) : 0;
}

double in_bf16(double value) { return to_float(to_bf16(static_cast<float>(value))); }

// What ALiBi adds to the score of the key at `j` for the row at `p`.
double alibi(const AttentionOptions& o, int64_t head, int64_t p, int64_t j) {
  if (!o.alibi_slopes) return 0;
  const double slope = o.alibi_slopes->at(head);
  if (o.alibi_in_bf16) return o.scale * in_bf16(in_bf16(slope) * in_bf16(static_cast<double>(j)));
  return slope * static_cast<double>(j - p);
}

// One query row `t` at position `p` and one query head.
void attend(TensorView out, ConstTensorView q, int64_t t, int64_t head, const Rows& rows, int64_t turned_run,
            int64_t p, const AttentionOptions& o) {
  const int64_t first = first_seen(p, o);
  std::vector<double> weights, query, sums(static_cast<size_t>(rows.value_dim));
  for (int64_t d = 0; d < rows.key_dim; ++d) query.push_back(q.at(t, head * rows.key_dim + d));
  turn_key<double>(query, turned_run);
  double max = o.sinks ? o.sinks->at(head) : -HUGE_VAL;
  for (int64_t j = first; j <= p; ++j) {
    double score = std::inner_product(query.begin(), query.end(), rows.key(j), 0.0) * o.scale;
    if (o.soft_cap > 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
    weights.push_back(score + alibi(o, head, p, j));
    max = std::max(max, weights.back());
  }
  double sum = o.sinks ? std::exp(o.sinks->at(head) - max) : 0;
  for (double& w : weights) sum += w = std::exp(w - max);
  for (int64_t j = first; j <= p; ++j) {
    const double weight = weights[static_cast<size_t>(j - first)];
    for (size_t d = 0; d < sums.size(); ++d) sums[d] += weight * rows.value(j)[d];
  }
  for (int64_t d = 0; d < rows.value_dim; ++d)
    out.set(t, head * rows.value_dim + d, sums[static_cast<size_t>(d)] / sum);
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
    const int64_t first_position = kv_len - (end - begin);
    if (begin == end) continue;
    for (int64_t kv_head = 0; kv_head < cache.layout.num_kv_heads; ++kv_head) {
      const Rows rows(cache, batch.block_table.row<int32_t>(s), options.layer, kv_head,
                      first_seen(first_position, options), kv_len);
      for_rows((end - begin) * group, [&](int64_t i) {
        attend(out, q, begin + i / group, kv_head * group + i % group, rows, cache.layout.turned_run(),
               first_position + i / group, options);
      });
    }
  }
}

}  // namespace lmdeploy
