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
      const auto write = [&](int kv, ConstTensorView x) {
        CachePlane(cache, slot / l.block_len, layer, kv, head)
            .set_row(slot % l.block_len, x, t, head * l.head_dim);
      };
      write(0, k);
      if (l.latent_dim == 0) write(1, v);
    }
  });
}

}  // namespace lmdeploy
