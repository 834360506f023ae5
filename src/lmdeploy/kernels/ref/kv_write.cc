// Reference of Kernels::kv_write.
#include "lmdeploy/kernels/checks.h"
#include "lmdeploy/kernels/ref/ref_kernels.h"

namespace lmdeploy {

void RefKernels::do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                             ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  checks::index_values("kv_write", "slots", slots, cache.num_blocks * l.block_len);
  for_rows(k.rows(), [&](int64_t t) {
    const int64_t slot = *(slots.row<int64_t>(0) + t);
    for (int64_t head = 0; head < l.num_kv_heads; ++head) {
      const TensorView k_rows = cache_rows(cache, slot / l.block_len, layer, 0, head);
      const TensorView v_rows = cache_rows(cache, slot / l.block_len, layer, 1, head);
      for (int64_t d = 0; d < l.head_dim; ++d) {
        k_rows.set(slot % l.block_len, d, k.at(t, head * l.head_dim + d));
        if (l.latent_dim == 0) v_rows.set(slot % l.block_len, d, v.at(t, head * l.head_dim + d));
      }
    }
  });
}

}  // namespace lmdeploy
