// rope_table, rope, and rope with kv_write.
#include "lmdeploy/kernels/cuda/cuda_kernels.h"
#include "lmdeploy/kernels/cuda/kv_codes.cuh"
#include "lmdeploy/kernels/cuda/kv_place.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/types.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kThreads = 128;

// In f64: f32 angles of far positions would be off by more than a bf16 step. A few thousand of them a step.
template <typename T>
__global__ void rope_table_kernel(Rows<T> table, const int32_t* positions, const double* inv_freq,
                                  const double* scale, const int32_t* table_idx, int64_t num_tables, int half,
                                  int64_t tokens) {
  const int j = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (j >= half) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t s = table_idx[t];
    double sine = nan(""), cosine = nan(""), size = 1;
    if (s >= 0 && s < num_tables) {
      sincos(positions[t] * inv_freq[s * half + j], &sine, &cosine);
      size = scale[s];
    }
    table.row(t)[j] = from_float<T>(static_cast<float>(cosine * size));
    table.row(t)[half + j] = from_float<T>(static_cast<float>(sine * size));
  }
}

/// A pair of elements turned by an angle: one order of operations for all kernels.
struct Turned {
  float first, second;
  __device__ Turned(float x, float y, float cosine, float sine) {
    first = __fmaf_rn(x, cosine, -__fmul_rn(y, sine));
    second = __fmaf_rn(y, cosine, __fmul_rn(x, sine));
  }
};

/// Pair j of a head: its elements, turned by a row of the table.
struct Pair {
  int64_t a, b;
  __device__ Pair(const RopeOptions& o, int half, int j)
      : a(o.first + (o.interleaved ? 2 * j : j)), b(o.first + (o.interleaved ? 2 * j + 1 : half + j)) {}
  template <typename T, typename Table>
  __device__ void turn(T* head, const Table* table, int half, int j) const {
    const Turned turned(to_float(head[a]), to_float(head[b]), to_float(table[j]), to_float(table[half + j]));
    head[a] = from_float<T>(turned.first);
    head[b] = from_float<T>(turned.second);
  }
};

template <typename T, typename Table>
__global__ void rope_kernel(Rows<T> x, Rows<const Table> table, int64_t tokens, int heads, int half,
                            RopeOptions o) {
  wait_for_previous_kernel();
  const int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (at >= heads * half) return;
  const int head = at / half, j = at % half;
  const Pair pair(o, half, j);
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y)
    pair.turn(x.row(t) + head * o.head_dim, table.row(t), half, j);
}

// A thread has, in this order: a pair of a query head; of a key head a pair, then an element that does not
// turn; an element of a value.
template <typename T, typename Table>
__global__ void rope_kv_write_kernel(Rows<T> x, Rows<const Table> table, Rows<const T> v, T* cache,
                                     KvPlace place, const int64_t* slots, int64_t tokens, int q_heads,
                                     int kv_heads, int half, RopeOptions o) {
  wait_for_previous_kernel();
  const int dim = place.head_dim, of_key = dim - half;
  int at = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (at < q_heads * half) {
    const Pair pair(o, half, at % half);
    for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y)
      pair.turn(x.row(t) + at / half * dim, table.row(t), half, at % half);
    return;
  }
  at -= q_heads * half;
  const bool is_key = at < kv_heads * of_key;
  if (!is_key) at -= kv_heads * of_key;
  const int size = is_key ? of_key : dim, head = at / size, j = at % size;
  if (head >= kv_heads) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    const int64_t slot = slots[t];
    T* row = cache + place.row(slot, head) + (is_key ? place.k_offset : place.v_offset);
    const bool exists = place.has(slot);  // never write outside the pool
    if (!is_key) {
      if (exists) row[j] = v.row(t)[head * dim + j];
      continue;
    }
    T* key = x.row(t) + (q_heads + head) * dim;
    if (j < half) {
      const Pair pair(o, half, j);
      pair.turn(key, table.row(t), half, j);
      if (exists) row[pair.a] = key[pair.a], row[pair.b] = key[pair.b];
    } else if (exists) {
      const int64_t d = j - half < o.first ? j - half : j + half;
      row[d] = key[d];
    }
  }
}

constexpr int kWideThreads = 256;

/// Eight pairs of a head, from pair j on: two accesses of 16 bytes.
template <typename T>
struct EightPairs {
  int64_t a, b;  // elements of the accesses
  Pack<T, 8> first, second;

  __device__ EightPairs(const RopeOptions& o, int half, int j)
      : a(o.first + (o.interleaved ? 2 * j : j)), b(o.interleaved ? a + 8 : a + half) {}
  __device__ void load(const T* head) {
    first = *reinterpret_cast<const Pack<T, 8>*>(head + a);
    second = *reinterpret_cast<const Pack<T, 8>*>(head + b);
  }
  template <typename Table>
  __device__ void turn(const T* head, const Table* table, int half, int j, bool interleaved) {
    load(head);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      T& x = interleaved ? (i < 4 ? first : second).values[i % 4 * 2] : first.values[i];
      T& y = interleaved ? (i < 4 ? first : second).values[i % 4 * 2 + 1] : second.values[i];
      const Turned turned(to_float(x), to_float(y), to_float(table[j + i]), to_float(table[half + j + i]));
      x = from_float<T>(turned.first), y = from_float<T>(turned.second);
    }
  }
  __device__ void store(T* head) const {
    *reinterpret_cast<Pack<T, 8>*>(head + a) = first;
    *reinterpret_cast<Pack<T, 8>*>(head + b) = second;
  }
};

template <typename Table>
__device__ void ask_for_angles(const Table* row, int half, int j) {
  ask_for(row + j);
  ask_for(row + half + j);
}

/// The same where everything is whole accesses of 16 bytes. A thread has eight pairs of a query or key head,
/// or eight elements of a key that do not turn, or of a value.
template <typename T, typename Table, bool kInterleaved>
__global__ void wide_rope_kv_write_kernel(Rows<T> x, Rows<const Table> table, Rows<const T> v, T* cache,
                                          KvPlace place, const int64_t* slots, int64_t tokens, int q_heads,
                                          int kv_heads, int half, RopeOptions o) {
  const int dim = place.head_dim, of_head = half / 8, of_rest = (dim - 2 * half) / 8, of_value = dim / 8;
  int at = static_cast<int>(blockIdx.x * kWideThreads + threadIdx.x);
  const bool turns = at < (q_heads + kv_heads) * of_head;
  if (!turns) at -= (q_heads + kv_heads) * of_head;
  const bool is_value = !turns && at >= kv_heads * of_rest;
  if (is_value) at -= kv_heads * of_rest;
  const int size = turns ? of_head : is_value ? of_value : of_rest;
  const int head = at / size, j = at % size * 8, kv_head = turns ? head - q_heads : head;
  const auto row_of = [&](int64_t t) -> T* {
    const int64_t slot = kv_head < 0 || kv_head >= kv_heads ? -1 : slots[t];
    return place.has(slot) ? cache + place.row(slot, kv_head) : nullptr;  // never write outside the pool
  };
  T* row = row_of(blockIdx.y);
  if (turns) ask_for_angles(table.row(blockIdx.y), half, j);
  wait_for_previous_kernel();
  if (kv_head >= kv_heads) return;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    if (t != blockIdx.y) row = row_of(t);
    if (turns) {
      T* from = x.row(t) + head * dim;
      EightPairs<T> pairs(o, half, j);
      pairs.turn(from, table.row(t), half, j, kInterleaved);
      pairs.store(from);
      if (row != nullptr) pairs.store(row + place.k_offset);
    } else if (row != nullptr) {
      const int64_t d = is_value || j < o.first ? j : j + 2 * half;
      const T* from = is_value ? v.row(t) + head * dim : x.row(t) + (q_heads + head) * dim;
      *reinterpret_cast<Pack<T, 8>*>(row + (is_value ? place.v_offset : place.k_offset) + d) =
          *reinterpret_cast<const Pack<T, 8>*>(from + d);
    }
  }
}

// ---- with codes: kDim / 16 lanes have a row, of which each has eight elements of either half ----

/// A row's key becomes H x / sqrt(kDim), as kv_write() turns it.
template <int kDim>
__device__ void turn_key(float (&x)[2][8], unsigned mask) {
#pragma unroll
  for (float(&half)[8] : x) {
    turn_elements(half);
#pragma unroll
    for (int other = 1; other < kDim / 16; other *= 2) turn_with_lane(half, other, mask);
  }
  const float factor = __fdiv_rn(1, __fsqrt_rn(static_cast<float>(kDim)));
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float a = x[0][i], b = x[1][i];
    x[0][i] = __fmul_rn(__fadd_rn(a, b), factor), x[1][i] = __fmul_rn(__fsub_rn(a, b), factor);
  }
}

/// Codes of a row, from column j of each half on. `plane`: the head's, in its block.
template <int kDim>
__device__ void write_row_codes(std::byte* plane, const CodePlace& place, int row, bool is_key, int j,
                                float (&x)[2][8], unsigned mask) {
  constexpr int kLanes = kDim / 16;
  const bool in_4_bits = place.row_bytes < kDim, two_parts = is_key && in_4_bits;
  if (two_parts) turn_key<kDim>(x, mask);
  Span spans[2];
#pragma unroll
  for (int i = 0; i < 16; ++i) spans[i / 8].add(x[i / 8][i % 8]);
  for (Span& span : spans) span.join_lanes(kLanes, mask);
  if (!two_parts) {
    spans[0].low = fminf(spans[0].low, spans[1].low), spans[0].high = fmaxf(spans[0].high, spans[1].high);
    spans[0].finite = spans[0].finite && spans[1].finite;
    spans[1] = spans[0];
  }
  const Coder first(spans[0], place.max_code), second(spans[1], place.max_code);
  const uint2 low = first.eight(x[0]), high = second.eight(x[1]);
  auto* codes = reinterpret_cast<uint2*>(plane + place.codes(row));
  if (in_4_bits) {
    codes[j / 8] = {low.x | high.x << 4, low.y | high.y << 4};
  } else {
    codes[j / 8] = low;
    codes[(kDim / 2 + j) / 8] = high;
  }
  auto* params = reinterpret_cast<__half2*>(plane + place.params(row, is_key));
  if (j == 0) params[0] = first.params;
  if (j == 0 && two_parts) params[1] = second.params;
}

/// Rows of a token: its query heads, its keys, its values. All elements of the first two turn.
template <typename T, typename Table, int kDim>
__global__ void rope_codes_kernel(Rows<T> x, Rows<const Table> table, Rows<const T> v, std::byte* cache,
                                  CodePlace place, const int64_t* slots, int64_t tokens, int q_heads,
                                  int kv_heads) {
  constexpr int kLanes = kDim / 16, kHalf = kDim / 2;
  const int at = static_cast<int>(blockIdx.x * kWideThreads + threadIdx.x), row = at / kLanes,
            j = at % kLanes * 8;
  ask_for_angles(table.row(blockIdx.y), kHalf, j);
  int64_t slot = slots[blockIdx.y];
  wait_for_previous_kernel();
  if (row >= q_heads + 2 * kv_heads) return;
  const unsigned mask = ((1u << kLanes) - 1) << (threadIdx.x % 32 / kLanes * kLanes);
  const bool is_query = row < q_heads, is_value = row >= q_heads + kv_heads;
  const int kv_head = is_value ? row - q_heads - kv_heads : row - q_heads;
  for (int64_t t = blockIdx.y; t < tokens; t += gridDim.y) {
    EightPairs<T> pairs({}, kHalf, j);
    if (is_value) {
      pairs.load(v.row(t) + kv_head * kDim);
    } else {
      T* from = x.row(t) + row * kDim;
      pairs.turn(from, table.row(t), kHalf, j, false);
      pairs.store(from);
    }
    if (t != blockIdx.y) slot = slots[t];
    if (is_query || !place.has(slot)) continue;  // never write outside the pool
    float elements[2][8];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      elements[0][i] = to_float(pairs.first.values[i]), elements[1][i] = to_float(pairs.second.values[i]);
    write_row_codes<kDim>(cache + place.plane(slot / place.block_len, kv_head, !is_value), place,
                          static_cast<int>(slot % place.block_len), !is_value, j, elements, mask);
  }
}

/// Whether rope_codes_kernel() takes it.
bool suits_codes(ConstTensorView x, ConstTensorView v, const KvCacheView& cache, const RopeOptions& o,
                 int64_t half) {
  const KvLayout& l = cache.layout;
  return l.quantized() && l.latent_dim == 0 && (l.head_dim == 64 || l.head_dim == 128) &&
         l.head_dim == o.head_dim && half == l.head_dim / 2 && o.first == 0 && !o.interleaved &&
         x.dtype() != DType::kF32 && v.dtype() == x.dtype() && is_wide(x, x.cols()) && is_wide(v, v.cols()) &&
         reinterpret_cast<uintptr_t>(cache.data) % 16 == 0 && l.key_plane_bytes() % 8 == 0 &&
         l.value_plane_bytes() % 8 == 0;
}

bool is_all_wide(ConstTensorView x, ConstTensorView v, const KvCacheView& cache, const RopeOptions& o,
                 int64_t half) {
  return x.dtype() != DType::kF32 && half % 8 == 0 && half > 0 && o.first % 8 == 0 && o.head_dim % 8 == 0 &&
         is_wide(x, x.cols()) && is_wide(v, v.cols()) && reinterpret_cast<uintptr_t>(cache.data) % 16 == 0;
}

/// body(type of x, type of the table): that of x or the wide one.
template <typename Body>
void with_table_type(ConstTensorView x, ConstTensorView table, const Body& body) {
  with_type(x.dtype(), [&]<typename T>(Type<T> type) {
    if (table.dtype() == x.dtype())
      body(type, type);
    else
      body(type, Type<float>());
  });
}

}  // namespace

void CudaKernels::do_rope_table(TensorView table, ConstTensorView positions, ConstTensorView inv_freq,
                                ConstTensorView scale, ConstTensorView table_idx) const {
  const int64_t half = inv_freq.cols();
  if (half == 0) return;
  const dim3 grid(static_cast<unsigned>(ceil_div(half, kThreads)), grid_rows(table.rows()));
  with_type(table.dtype(), [&]<typename T>(Type<T>) {
    rope_table_kernel<<<grid, kThreads, 0, stream_>>>(
        rows_of<T>(table), positions.row<int32_t>(0), inv_freq.row<double>(0), scale.row<double>(0),
        table_idx.row<int32_t>(0), inv_freq.dim(0), static_cast<int>(half), table.rows());
  });
  check_launch("rope_table", table.shape());
}

void CudaKernels::do_rope_kv_write(TensorView x, ConstTensorView table, RopeOptions options,
                                   const KvCacheView& cache, int64_t layer, ConstTensorView v,
                                   ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  if (suits_codes(x, v, cache, options, table.cols() / 2))
    return rope_write_codes(x, table, cache, layer, v, slots);
  if (l.dtype != x.dtype() || v.dtype() != x.dtype() || l.latent_dim > 0 || options.head_dim != l.head_dim)
    return Kernels::do_rope_kv_write(x, table, options, cache, layer, v, slots);
  const int64_t half = table.cols() / 2, q_heads = x.cols() / l.head_dim - l.num_kv_heads;
  const bool wide = is_all_wide(x, v, cache, options, half);
  const int64_t each = wide ? q_heads * half / 8 + l.num_kv_heads * (2 * l.head_dim - half) / 8
                            : q_heads * half + l.num_kv_heads * (2 * l.head_dim - half);
  const int threads = wide ? kWideThreads : kThreads;
  const dim3 grid(static_cast<unsigned>(ceil_div(each, threads)), grid_rows(x.rows()));
  const auto run = [&]<typename T, typename Table>(Type<T>, Type<Table>) {
    const auto kernel = !wide                 ? rope_kv_write_kernel<T, Table>
                        : options.interleaved ? wide_rope_kv_write_kernel<T, Table, true>
                                              : wide_rope_kv_write_kernel<T, Table, false>;
    launch(kernel, grid, threads, 0, stream_, rows_of<T>(x), rows_of<Table>(table), rows_of<T>(v),
           reinterpret_cast<T*>(cache.data), KvPlace(cache, layer), slots.row<int64_t>(0), x.rows(),
           static_cast<int>(q_heads), static_cast<int>(l.num_kv_heads), static_cast<int>(half), options);
  };
  with_table_type(x, table, run);
  check_launch("rope_kv_write", x.shape());
}

void CudaKernels::rope_write_codes(TensorView x, ConstTensorView table, const KvCacheView& cache,
                                   int64_t layer, ConstTensorView v, ConstTensorView slots) const {
  const KvLayout& l = cache.layout;
  const int64_t q_heads = x.cols() / l.head_dim - l.num_kv_heads, rows = q_heads + 2 * l.num_kv_heads;
  const dim3 grid(static_cast<unsigned>(ceil_div(rows * (l.head_dim / 16), kWideThreads)),
                  grid_rows(x.rows()));
  const auto run = [&]<typename T, typename Table>(Type<T>, Type<Table>) {
    const auto kernel = l.head_dim == 64 ? rope_codes_kernel<T, Table, 64> : rope_codes_kernel<T, Table, 128>;
    launch(kernel, grid, kWideThreads, 0, stream_, rows_of<T>(x), rows_of<Table>(table), rows_of<T>(v),
           cache.data, CodePlace(cache, layer), slots.row<int64_t>(0), x.rows(), static_cast<int>(q_heads),
           static_cast<int>(l.num_kv_heads));
  };
  with_table_type(x, table, run);
  check_launch("rope_kv_write", x.shape());
}

void CudaKernels::do_rope(TensorView x, ConstTensorView table, RopeOptions options) const {
  const int64_t half = table.cols() / 2, heads = x.cols() / options.head_dim;
  const dim3 grid(static_cast<unsigned>(ceil_div(heads * half, kThreads)), grid_rows(x.rows()));
  const auto run = [&]<typename T, typename Table>(Type<T>, Type<Table>) {
    launch(rope_kernel<T, Table>, grid, kThreads, 0, stream_, rows_of<T>(x), rows_of<Table>(table), x.rows(),
           static_cast<int>(heads), static_cast<int>(half), options);
  };
  with_table_type(x, table, run);
  check_launch("rope", x.shape());
}

}  // namespace lmdeploy::cuda
