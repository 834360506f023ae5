// attention over the paged cache: chooses the kernel.
#include <algorithm>

#include "lmdeploy/kernels/cuda/attention.cuh"

namespace lmdeploy::cuda {
namespace {

AttentionArgs attention_args(TensorView out, ConstTensorView q, const KvCacheView& cache,
                             const AttentionBatch& batch, const AttentionOptions& o) {
  const KvLayout& l = cache.layout;
  AttentionArgs a = {};
  a.out = out.data(), a.out_stride_bytes = out.row_stride_bytes();
  a.q = q.data(), a.q_stride_bytes = q.row_stride_bytes();
  a.dtype = q.dtype();
  a.cache = cache.data;
  a.block_elements = l.block_elements();
  a.k_offset = o.layer * l.layer_elements();
  a.v_offset = a.k_offset + l.num_kv_heads * l.block_len * l.head_dim;
  if (l.quantized()) a.codes = CodePlace(cache, o.layer);
  a.num_blocks = cache.num_blocks;
  a.query_start = batch.query_start.row<int32_t>(0);
  a.kv_len = batch.kv_len.row<int32_t>(0);
  a.block_table = batch.block_table.row<int32_t>(0);
  a.table_stride = batch.block_table.row_stride_bytes() / 4;
  a.num_seqs = static_cast<int>(batch.kv_len.cols());
  a.max_blocks = static_cast<int>(batch.block_table.cols());
  a.group = static_cast<int>(o.num_heads / l.num_kv_heads);
  a.num_kv_heads = static_cast<int>(l.num_kv_heads);
  a.head_dim = static_cast<int>(l.head_dim);
  a.value_dim = static_cast<int>(l.value_dim());
  a.block_len = static_cast<int>(l.block_len);
  a.latent = l.latent_dim > 0;
  a.scale = o.scale, a.soft_cap = o.soft_cap;
  a.window = static_cast<int>(std::min<int64_t>(o.window, INT32_MAX));
  a.sinks = o.sinks ? o.sinks->row<float>(0) : nullptr;
  a.slopes = o.alibi_slopes ? o.alibi_slopes->row<float>(0) : nullptr;
  a.alibi_in_bf16 = o.alibi_in_bf16;
  a.num_spans =
      static_cast<int>(std::max<int64_t>(1, ceil_div(batch.block_table.cols() * l.block_len, kSpan)));
  return a;
}

// 16-bit q, out and cache of one dtype, rows of whole 16 bytes; or a cache in codes whose planes are.
bool fits_tiles(ConstTensorView out, ConstTensorView q, const KvCacheView& cache) {
  const KvLayout& l = cache.layout;
  const bool wide =
      reinterpret_cast<uintptr_t>(cache.data) % 16 == 0 && is_wide(q, q.cols()) && is_wide(out, out.cols());
  if (!wide || l.latent_dim > 0 || q.dtype() == DType::kF32) return false;
  if (l.quantized())
    return (l.head_dim == 64 || l.head_dim == 128) && l.key_plane_bytes() % 16 == 0 &&
           l.value_plane_bytes() % 16 == 0;
  return q.dtype() == l.dtype && l.head_dim <= kMostTiledHeadDim && l.head_dim % 8 == 0;
}

template <typename T>
bool run_tiled(const AttentionArgs& args, DType cached, int64_t tokens, const DeviceLimits& device,
               Scratch& scratch, cudaStream_t stream) {
  const auto run = [&]<typename Format>(Type<Format>) {
    return run_tiled_attention<Format>(args, tokens, device, scratch, stream);
  };
  const int dim = args.head_dim;
  if (cached == DType::kU8) return dim == 64 ? run(Type<Codes<T, 64, 8>>()) : run(Type<Codes<T, 128, 8>>());
  if (cached == DType::kU4) return dim == 64 ? run(Type<Codes<T, 64, 4>>()) : run(Type<Codes<T, 128, 4>>());
  if (dim <= 64) return run(Type<Elements<T, 64>>());
  if (dim <= 128) return run(Type<Elements<T, 128>>());
  return dim <= 192 ? run(Type<Elements<T, 192>>()) : run(Type<Elements<T, 256>>());
}

}  // namespace

void CudaKernels::do_attention(TensorView out, ConstTensorView q, const KvCacheView& cache,
                               const AttentionBatch& batch, const AttentionOptions& options) const {
  const KvLayout& l = cache.layout;
  if (l.head_dim > kMostHeadDim)
    throw Error(ErrorCode::kUnsupported,
                cat("attention: head_dim ", l.head_dim, ", the CUDA back end takes ", kMostHeadDim));
  if (q.dtype() != out.dtype())
    throw Error(ErrorCode::kInvalidArgument, cat("attention: q is ", q.dtype(), ", out is ", out.dtype()));
  AttentionArgs args = attention_args(out, q, cache, batch, options);
  args.batch_invariant = options_.batch_invariant;
  args.arrivals = reinterpret_cast<int32_t*>(arrivals_.data());
  if (device_.code.major >= 8 && fits_tiles(out, q, cache)) {
    const bool half = q.dtype() == DType::kF16;
    if (half ? run_tiled<__half>(args, l.dtype, q.rows(), device_, scratch_, stream_)
             : run_tiled<__nv_bfloat16>(args, l.dtype, q.rows(), device_, scratch_, stream_))
      return;
  }
  const auto run = [&]<typename Cached>(Type<Cached>) {
    run_plain_attention<Cached>(args, q.rows(), device_, scratch_, stream_);
  };
  if (l.dtype == DType::kU8)
    run(Type<U8>());
  else if (l.dtype == DType::kU4)
    run(Type<U4>());
  else
    with_type(l.dtype, run);
}

}  // namespace lmdeploy::cuda
