// kv_write: each row of k and v goes to its slot of the paged cache, converted to the cache's dtype.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;

struct CachePlace {
  int64_t block_elements;  // of all layers
  int64_t k_offset;        // of this layer's keys in a block
  int64_t v_offset;        // of its values; < 0: there are none
  int64_t num_slots;
  int block_len;
  int head_dim;
};

template <typename T, typename Cached>
__global__ void kv_write_kernel(Cached* cache, CachePlace place, Rows<const T> k, Rows<const T> v,
                                const int64_t* slots, int64_t tokens, int cols) {
  wait_for_previous_kernel();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= cols) return;
  const int head = i / place.head_dim, d = i % place.head_dim;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t slot = slots[t];
    if (slot < 0 || slot >= place.num_slots) continue;  // never write outside the pool
    const int64_t within = (int64_t{head} * place.block_len + slot % place.block_len) * place.head_dim + d;
    Cached* block = cache + slot / place.block_len * place.block_elements;
    block[place.k_offset + within] = from_float<Cached>(to_float(k.row(t)[i]));
    if (place.v_offset >= 0) block[place.v_offset + within] = from_float<Cached>(to_float(v.row(t)[i]));
  }
}

}  // namespace

void CudaKernels::do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                              ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  const int64_t first = layer * l.layer_elements();
  const CachePlace place = {
      .block_elements = l.block_elements(),
      .k_offset = first,
      .v_offset = l.latent_dim > 0 ? -1 : first + l.num_kv_heads * l.block_len * l.head_dim,
      .num_slots = cache.num_blocks * l.block_len,
      .block_len = static_cast<int>(l.block_len),
      .head_dim = static_cast<int>(l.head_dim)};
  if (k.dtype() != v.dtype())
    throw Error(ErrorCode::kInvalidArgument, cat("kv_write: k is ", k.dtype(), ", v is ", v.dtype()));
  const dim3 grid(static_cast<unsigned>(ceil_div(k.cols(), kThreads)), grid_rows(k.rows()));
  with_type(k.dtype(), [&]<typename T>(Type<T>) {
    with_type(l.dtype, [&]<typename Cached>(Type<Cached>) {
      launch(kv_write_kernel<T, Cached>, grid, kThreads, 0, stream_, reinterpret_cast<Cached*>(cache.data),
             place, rows_of<T>(k), rows_of<T>(v), slots.row<int64_t>(0), k.rows(),
             static_cast<int>(k.cols()));
    });
  });
  check_launch("kv_write", k.shape());
}

}  // namespace lmdeploy::cuda
