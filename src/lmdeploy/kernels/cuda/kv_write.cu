// kv_write: each row of k and v goes to its slot of the paged cache, converted to the cache's dtype or turned
// into codes.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/kv_codes.cuh"
#include "lmdeploy/kernels/cuda/kv_place.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, typename Cached>
__global__ void kv_write_kernel(Cached* cache, KvPlace place, Rows<const T> k, Rows<const T> v,
                                const int64_t* slots, int64_t tokens, int cols) {
  wait_for_previous_kernel();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= cols) return;
  const int head = i / place.head_dim, d = i % place.head_dim;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t slot = slots[t];
    if (!place.has(slot)) continue;  // never write outside the pool
    Cached* row = cache + place.row(slot, head);
    row[place.k_offset + d] = from_float<Cached>(to_float(k.row(t)[i]));
    if (place.v_offset >= 0) row[place.v_offset + d] = from_float<Cached>(to_float(v.row(t)[i]));
  }
}

// ---- codes: a warp for each head's row of a token ----

constexpr int kRowsOfBlock = kThreads / 32;

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % 32; }

// The runs of a row in shared memory.
__device__ void turn(float* x, int size, int run) {
  for (int h = 1; h < run; h *= 2) {
    for (int pair = lane(); pair < size / 2; pair += 32) {
      const int low = pair / h * 2 * h + pair % h;
      const float a = x[low], b = x[low + h];
      x[low] = __fadd_rn(a, b);
      x[low + h] = __fsub_rn(a, b);
    }
    __syncwarp();
  }
  const float factor = __fdiv_rn(1, __fsqrt_rn(static_cast<float>(run)));
  for (int i = lane(); i < size; i += 32) x[i] = __fmul_rn(x[i], factor);
  __syncwarp();
}

// Of a part of a row in shared memory.
__device__ Coder coder_of(const float* x, int size, int max_code) {
  Span span;
  for (int i = lane(); i < size; i += 32) span.add(x[i]);
  span.join_lanes(32, ~0u);
  if (size == 0) span.low = span.high = 0;
  return Coder(span, max_code);
}

__device__ void write_codes(std::byte* plane, const CodePlace& place, int row, bool is_key, float* x) {
  const int dim = place.head_dim, bytes = place.row_bytes;
  if (is_key && place.turned_run > 1) turn(x, dim, place.turned_run);
  auto* codes = reinterpret_cast<uint8_t*>(plane + place.codes(row));
  std::byte* params = plane + place.params(row, is_key);
  const bool two_parts = is_key && place.key_parts == 2;
  const Coder first = coder_of(x, two_parts ? bytes : dim, place.max_code),
              second = two_parts ? coder_of(x + bytes, dim - bytes, place.max_code) : first;
  if (lane() == 0) {
    reinterpret_cast<__half2*>(params)[0] = first.params;
    if (two_parts) reinterpret_cast<__half2*>(params)[1] = second.params;
  }
  for (int i = lane(); i < bytes; i += 32) {
    const unsigned high = bytes + i < dim ? second.code(x[bytes + i]) : 0;
    codes[i] = static_cast<uint8_t>(first.code(x[i]) | high << 4);  // in u8 there is nothing behind the bytes
  }
}

template <typename T>
__global__ void kv_write_codes_kernel(std::byte* cache, CodePlace place, Rows<const T> k, Rows<const T> v,
                                      const int64_t* slots, int64_t tokens, int heads) {
  extern __shared__ float rows[];
  wait_for_previous_kernel();
  const int warp = static_cast<int>(threadIdx.x) / 32, planes = place.v_offset < 0 ? 1 : 2;
  const int at = static_cast<int>(blockIdx.x) * kRowsOfBlock + warp;
  if (at >= planes * heads) return;
  const bool is_key = at < heads;
  const int head = is_key ? at : at - heads;
  float* x = rows + warp * place.head_dim;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t slot = slots[t];
    if (!place.has(slot)) continue;  // never write outside the pool
    const T* from = (is_key ? k : v).row(t) + head * place.head_dim;
    for (int i = lane(); i < place.head_dim; i += 32) x[i] = to_float(from[i]);
    __syncwarp();
    write_codes(cache + place.plane(slot / place.block_len, head, is_key), place,
                static_cast<int>(slot % place.block_len), is_key, x);
    __syncwarp();
  }
}

}  // namespace

void CudaKernels::write_codes(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                              ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  const CodePlace place(cache, layer);
  const int64_t rows = (l.latent_dim > 0 ? 1 : 2) * l.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(ceil_div(rows, kRowsOfBlock)), grid_rows(k.rows()));
  const int shared_bytes = kRowsOfBlock * place.head_dim * static_cast<int>(sizeof(float));
  with_type(k.dtype(), [&]<typename T>(Type<T>) {
    launch(kv_write_codes_kernel<T>, grid, kThreads, shared_bytes, stream_, cache.data, place, rows_of<T>(k),
           rows_of<T>(v), slots.row<int64_t>(0), k.rows(), static_cast<int>(l.num_kv_heads));
  });
  check_launch("kv_write", k.shape());
}

void CudaKernels::do_kv_write(const KvCacheView& cache, int64_t layer, ConstTensorView k, ConstTensorView v,
                              ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  if (k.dtype() != v.dtype())
    throw Error(ErrorCode::kInvalidArgument, cat("kv_write: k is ", k.dtype(), ", v is ", v.dtype()));
  if (l.quantized()) return write_codes(cache, layer, k, v, slots);
  const dim3 grid(static_cast<unsigned>(ceil_div(k.cols(), kThreads)), grid_rows(k.rows()));
  with_type(k.dtype(), [&]<typename T>(Type<T>) {
    with_type(l.dtype, [&]<typename Cached>(Type<Cached>) {
      launch(kv_write_kernel<T, Cached>, grid, kThreads, 0, stream_, reinterpret_cast<Cached*>(cache.data),
             KvPlace(cache, layer), rows_of<T>(k), rows_of<T>(v), slots.row<int64_t>(0), k.rows(),
             static_cast<int>(k.cols()));
    });
  });
  check_launch("kv_write", k.shape());
}

}  // namespace lmdeploy::cuda
