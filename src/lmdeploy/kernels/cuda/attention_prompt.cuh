// Attention on tensor cores, prompts on Hopper (the overlaps of Shah et al. 2024, FlashAttention-3): two
// warpgroups with 64 query rows each multiply tiles of 64 keys by wgmma, a third one brings the tiles to
// shared memory ahead of them. While the tensor cores multiply a tile's weights with its values the next
// tile's scores become weights.
//
// A Source (attention_prompt_elements.cuh, attention_prompt_codes.cuh) says how tiles and queries come to
// shared memory.
#pragma once

#include "lmdeploy/kernels/cuda/attention_elements.cuh"
#include "lmdeploy/kernels/cuda/tensor_copy.cuh"
#include "lmdeploy/kernels/cuda/wgmma.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kGroupRows = 64, kPromptGroups = 2;
constexpr int kPromptRows = kPromptGroups * kGroupRows;
constexpr int kPromptThreads = (kPromptGroups + 1) * kGroupThreads;  // the last group reads

/// Queries, keys and values of a block as wgmma takes them: [kDim / 64] parts of rows of 64 elements,
/// swizzled.
template <int kDim>
struct PromptLayout {
  static constexpr int kParts = kDim / 64;
  static constexpr int kRowsPart = kGroupRows * kSwizzledRow, kKeysPart = kTileKeys * kSwizzledRow;
  static constexpr int kMatrix = kParts * kKeysPart;  // a tile's keys, or its values
};

/// Shared memory of a block. `Source`:
///   T, Matrix         of queries and results; of the matrices that are multiplied
///   kDim              their columns, at least head_dim
///   kStages           tiles that are there at once
///   kReaderRegisters  of a thread of the group that reads
///   kWriters          of its warps that say a tile has come
///   Memory            what else the source has in shared memory
///   kHasUnits         scores are in units of a row
///   Reader(source, a, tile, keys, kv_head, memory).run()  the group that reads, tile by tile
///   load_queries(a, rows, queries, units)                 a warpgroup's
/// The source is a parameter of the kernel.
template <typename Source>
struct PromptMemory {
  using Layout = PromptLayout<Source::kDim>;

  std::byte queries[kPromptGroups][Layout::kParts * Layout::kRowsPart];  // at last their results
  std::byte tiles[Source::kStages][2 * Layout::kMatrix];                 // keys, then values
  typename Source::Memory source;
  CopyRing<Source::kStages> ring;
  int2 rows[kPromptGroups][kGroupRows];  // token in q and head of each; a token of -1: there is no such row
  float units[kPromptGroups][kGroupRows];
};

/// body(token, head, element, place) for the thread's part of the `rows` that exist, 16 bytes at a time:
/// where they are in q and out, and in `matrix`. All threads of a warpgroup call it.
template <int kDim, typename Body>
__device__ void for_each_chunk(const AttentionArgs& a, const int2* rows, std::byte* matrix,
                               const Body& body) {
  constexpr int kPerRow = kDim / 8, kRowsAtOnce = kGroupThreads / kPerRow;
  const int chunk = thread() % kPerRow, first_row = thread() % kGroupThreads / kPerRow;
  std::byte* part = matrix + chunk / 8 * PromptLayout<kDim>::kRowsPart;
  if (chunk * 8 >= a.head_dim) return;
#pragma unroll
  for (int i = 0; i < kGroupRows / kRowsAtOnce; ++i) {
    const int row = first_row + i * kRowsAtOnce;
    const int2 place = rows[row];
    if (place.x >= 0)
      body(place.x, place.y, chunk * 8, reinterpret_cast<uint4*>(part + swizzled(row, chunk % 8)));
  }
}

/// Tiles of which some row, and all rows, of a range see all keys.
struct SeenTiles {
  int first = 0, end = 0;
  int first_whole = 0, end_whole = 0;
  __device__ SeenTiles(const AttentionArgs& a, const AttentionTile& tile, int first_row, int rows) {
    const int last_row = min(first_row + rows, tile.num_rows) - 1;
    if (last_row < first_row) return;
    const int low = tile.position(first_row, a.group), high = tile.position(last_row, a.group);
    const auto from = [&](int position) { return a.window == 0 ? 0 : max(0, position - a.window + 1); };
    first = from(low) / kTileKeys, end = high / kTileKeys + 1;
    first_whole = (from(high) + kTileKeys - 1) / kTileKeys, end_whole = (low + 1) / kTileKeys;
  }
};

/// Whether q * k becomes a score by a multiplication alone.
__device__ inline bool has_plain_scores(const AttentionArgs& a) {
  return a.soft_cap == 0 && a.slopes == nullptr && a.scale > 0;
}

using PromptScores = float[kTileKeys / 8][4];

/// The keys that a lane's rows see.
struct SeenKeys {
  int first[2], last[2];
  __device__ bool sees(int i, int key) const { return key >= first[i] && key <= last[i]; }
};

/// With soft cap or ALiBi: rare, and long. `heads`: of the lane's rows.
static __device__ __noinline__ void finish_long_scores(const AttentionArgs& a, const SeenKeys& keys,
                                                       int2 heads, int lane_key, PromptScores& scores) {
  const float slopes[2] = {a.slopes == nullptr ? 0 : a.slopes[heads.x],
                           a.slopes == nullptr ? 0 : a.slopes[heads.y]};
  for (int n = 0; n < kTileKeys / 8; ++n)
    for (int i = 0; i < 4; ++i)
      scores[n][i] = long_score(a, scores[n][i], slopes[i / 2], lane_key + n * 8 + i % 2, keys.last[i / 2]);
}

/// Values of a tile that are not finite become 0: a weight of 0 would not keep them out of rows that do not
/// see them. Which of the lane's results they belong to, a bit for each number of Sums::values. `any` is a
/// barrier of all that call it, and whether it was so for one of them.
template <typename T, int kDim, typename Any>
__device__ __noinline__ uint64_t take_wild_values(const SeenKeys& keys, int first_key, std::byte* values,
                                                  const Any& any) {
  constexpr int kChunks = kTileKeys * kDim * 2 / 16, kThreads = kPromptGroups * kGroupThreads;
  auto* chunks = reinterpret_cast<uint4*>(values);
  uint32_t carry = 0;
  for (int i = thread(); i < kChunks; i += kThreads) {
    const uint4 v = chunks[i];
    carry |= carry_of_exponents<T>(v.x) | carry_of_exponents<T>(v.y) | carry_of_exponents<T>(v.z) |
             carry_of_exponents<T>(v.w);
  }
  if (!any((carry & 0x80008000) != 0)) return 0;
  uint64_t wild = 0;
  for (int key = 0; key < kTileKeys; ++key)
    for (int n = 0; n < kDim / 8; ++n) {
      const int d = n * 8 + lane() % 4 * 2;
      const uint32_t bad = not_finite<T>(*reinterpret_cast<const uint32_t*>(
          values + d / 64 * PromptLayout<kDim>::kKeysPart + swizzled(key, d % 64 / 8) + d % 8 * 2));
      for (int i = 0; i < 4; ++i)
        if ((bad >> i % 2 * 16 & 1) != 0 && keys.sees(i / 2, first_key + key))
          wild |= uint64_t{1} << (n * 4 + i);
    }
  any(false);
  for (int i = thread(); i < kChunks; i += kThreads) {
    uint4 v = chunks[i];
    v.x &= ~not_finite<T>(v.x), v.y &= ~not_finite<T>(v.y);
    v.z &= ~not_finite<T>(v.z), v.w &= ~not_finite<T>(v.w);
    chunks[i] = v;
  }
  show_to_products();
  any(false);
  return wild;
}

/// A warpgroup with its rows. All its threads call everything.
template <typename Source>
class PromptRows {
  using T = typename Source::T;
  using Matrix = typename Source::Matrix;
  using Memory = PromptMemory<Source>;
  using Layout = typename Memory::Layout;
  static constexpr int kDim = Source::kDim;

 public:
  __device__ PromptRows(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                        Memory& memory)
      : a_(a),
        memory_(memory),
        group_(__shfl_sync(~0u, thread() / kGroupThreads, 0)),
        lane_row_(thread() % kGroupThreads / 32 * kWarpRows + lane() / 4),
        begin_(keys.first_tile()),
        end_(keys.end_tile()),
        mine_(a, tile, group_ * kGroupRows, kGroupRows),
        queries_(memory.queries[group_]) {
    const SeenTiles by_block(a, tile, 0, kPromptRows);
    first_whole_ = by_block.first_whole, end_whole_ = by_block.end_whole;
    for (int i = 0; i < 2; ++i) {
      const int row = min(group_ * kGroupRows + lane_row_ + i * 8, tile.num_rows - 1);
      keys_.last[i] = tile.position(row, a.group);
      keys_.first[i] = a.window == 0 ? 0 : keys_.last[i] - a.window + 1;
    }
    list_rows(tile, kv_head);
    wait_for_previous_kernel();
    Source::load_queries(a_, memory_.rows[group_], queries_, memory_.units[group_]);
    show_to_products();
    sync();
  }

  __device__ void run() {
    sums_.clear();
    int t = begin_;
    const int end = min(mine_.end, end_);
    first_ = max(mine_.first, t);
    for (; t < min(first_, end_); ++t) skip(t);
    if (t < end) {
      wait_for(t);
      hold(scores_);
      begin_products();
      multiply_keys(t);
      wait_for_products<0>();
      weigh(t);
      split();
      for (++t; t < end; ++t) step(t);
      finish(end - 1);
    }
    for (; t < end_; ++t) skip(t);
    store();
  }

 private:
  /// A barrier of the warpgroup.
  __device__ void sync() const {
    asm volatile("barrier.sync %0, %1;" ::"r"(group_ + 1), "n"(kGroupThreads) : "memory");
  }
  __device__ float unit_of(int i) const {
    if constexpr (Source::kHasUnits) return memory_.units[group_][lane_row_ + i * 8];
    return 1;
  }
  __device__ void list_rows(const AttentionTile& tile, int kv_head) {
    const int row = thread() % kGroupThreads, r = group_ * kGroupRows + row;
    if (row < kGroupRows)
      memory_.rows[group_][row] =
          r < tile.num_rows ? int2{tile.token(r, a_.group), kv_head * a_.group + tile.head(r, a_.group)}
                            : int2{-1, 0};
    sync();
  }
  /// The rows, through the memory of the queries.
  __device__ void store() {
    if (wild_ != 0)
#pragma unroll
      for (int i = 0; i < kDim / 2; ++i)
        if ((wild_ >> i & 1) != 0) sums_.values[i / 4][i % 4] = nanf("");
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = lane_row_ + i * 8;
      sums_.weights[2 * i] += __shfl_xor_sync(~0u, sums_.weights[2 * i], 1);
      sums_.weights[2 * i] += __shfl_xor_sync(~0u, sums_.weights[2 * i], 2);
      const float factor = last_factor(a_, memory_.rows[group_][row].y, sums_.max[i], sums_.weights[2 * i]);
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n)
        *reinterpret_cast<uint32_t*>(queries_ + n / 8 * Layout::kRowsPart + swizzled(row, n % 8) +
                                     lane() % 4 * 4) =
            pack<T>(sums_.values[n][2 * i] * factor, sums_.values[n][2 * i + 1] * factor);
    }
    sync();
    for_each_chunk<kDim>(a_, memory_.rows[group_], queries_,
                         [&](int token, int head, int d, const uint4* place) {
                           T* row = reinterpret_cast<T*>(a_.out + token * a_.out_stride_bytes);
                           *reinterpret_cast<uint4*>(row + int64_t{head} * a_.head_dim + d) = *place;
                         });
  }

  __device__ int use_of(int t) const { return t - begin_; }
  __device__ std::byte* tile(int t) const { return memory_.tiles[memory_.ring.stage(use_of(t))]; }
  __device__ void wait_for(int t) {
    memory_.ring.wait_for_copies(use_of(t));
    check_values(t);
  }
  __device__ void release(int t) { memory_.ring.release(use_of(t)); }
  __device__ void skip(int t) {
    wait_for(t);
    release(t);
  }
  /// Where not all rows of the block see the whole tile: both warpgroups, in the same order.
  __device__ void check_values(int t) {
    if (t >= first_whole_ && t < end_whole_) return;
    const SeenKeys keys = keys_;
    wild_ |= take_wild_values<Matrix, kDim>(keys, t * kTileKeys, tile(t) + Layout::kMatrix, [](bool mine) {
      uint32_t result;
      asm volatile(
          "{.reg .pred p, q; setp.ne.u32 p, %1, 0; barrier.red.or.pred q, %2, %3, p; selp.u32 %0, 1, 0, q;}"
          : "=r"(result)
          : "r"(static_cast<uint32_t>(mine)), "n"(kPromptGroups + 1), "n"(kPromptGroups * kGroupThreads)
          : "memory");
      return result != 0;
    });
  }

  /// Starts scores = queries * keys of tile t.
  __device__ void multiply_keys(int t) {
    const SwizzledMatrix queries(shared_address(queries_), kSwizzledRows, 16),
        keys(shared_address(tile(t)), kSwizzledRows, 16);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k)
      multiply_group<Matrix, 0>(scores_, queries + (k / 4 * Layout::kRowsPart + k % 4 * 32),
                                keys + (k / 4 * Layout::kKeysPart + k % 4 * 32), k > 0);
    commit_products();
  }
  /// Starts values += weights * values of tile t.
  __device__ void multiply_values(int t) {
    const SwizzledMatrix values(shared_address(tile(t)) + Layout::kMatrix, kSwizzledRows, Layout::kKeysPart);
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      multiply_group<Matrix, 1>(sums_.values, high_[k], values + k * 2 * kSwizzledRows, true);
      multiply_group<Matrix, 1>(sums_.values, low_[k], values + k * 2 * kSwizzledRows, true);
    }
    commit_products();
  }
  /// Scores of tile t, which are there, become weights.
  __device__ void weigh(int t) {
    hold(scores_);
    const int first_key = t * kTileKeys;
    const bool plain = has_plain_scores(a_);
    if (!plain) finish_scores(first_key);
    const float scale[2] = {plain ? a_.scale * kLog2e * unit_of(0) : 1,
                            plain ? a_.scale * kLog2e * unit_of(1) : 1};
    if (t < mine_.first_whole || t >= mine_.end_whole) hide(first_key);
    float max[2];
    find_largest(max);
    for (int i = 0; i < 2; ++i) max[i] *= scale[i];
    raised_ = raise_max(sums_.max, max, factor_);
    const float reference[2] = {-reference_of(sums_.max[0]), -reference_of(sums_.max[1])};
    float sum[4] = {sums_.weights[0] * factor_[0], 0, sums_.weights[2] * factor_[1], 0};
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores_[n][i] = exp2_fast(__fmaf_rn(scores_[n][i], scale[i / 2], reference[i / 2]));
        sum[i] += scores_[n][i];
      }
    sums_.weights[0] = sum[0] + sum[1], sums_.weights[2] = sum[2] + sum[3];
  }
  __device__ void finish_scores(int first_key) {
    PromptScores copy;  // only this one has an address: it alone is in memory
#pragma unroll
    for (int i = 0; i < kTileKeys / 2; ++i) copy[i / 4][i % 4] = scores_[i / 4][i % 4] * unit_of(i % 4 / 2);
    const SeenKeys keys = keys_;
    const int2* rows = memory_.rows[group_] + lane_row_;
    finish_long_scores(a_, keys, {rows[0].y, rows[8].y}, first_key + lane() % 4 * 2, copy);
#pragma unroll
    for (int i = 0; i < kTileKeys / 2; ++i) scores_[i / 4][i % 4] = copy[i / 4][i % 4];
  }
  /// The same as find_max(), in shorter chains.
  __device__ void find_largest(float (&max)[2]) const {
    float m[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) m[i] = fmaxf(scores_[i / 4][i % 4], scores_[i / 4 + 2][i % 4]);
#pragma unroll
    for (int n = 4; n < kTileKeys / 8; n += 2)
#pragma unroll
      for (int i = 0; i < 8; ++i) m[i] = fmaxf(m[i], scores_[n + i / 4][i % 4]);
    for (int i = 0; i < 2; ++i)
      max[i] = fmaxf(fmaxf(m[2 * i], m[2 * i + 1]), fmaxf(m[2 * i + 4], m[2 * i + 5]));
    for (int other = 1; other < 4; other *= 2)
      for (float& m : max) m = fmaxf(m, __shfl_xor_sync(~0u, m, other));
  }
  __device__ void hide(int first_key) {
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (!keys_.sees(i / 2, first_key + lane() % 4 * 2 + n * 8 + i % 2)) scores_[n][i] = -INFINITY;
  }
  /// Weights of a tile as factors of its values.
  __device__ void split() {
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k)
#pragma unroll
      for (int part = 0; part < 4; ++part)
        split_weights<Matrix>(scores_[2 * k + part / 2][part % 2 * 2],
                              scores_[2 * k + part / 2][part % 2 * 2 + 1], high_[k][part], low_[k][part]);
  }
  /// The weights of tile t - 1 meet its values while the scores of tile t become weights.
  __device__ void step(int t) {
    wait_for(t);
    hold(scores_);
    hold(sums_.values);
    begin_products();
    multiply_keys(t);
    multiply_values(t - 1);
    wait_for_products<1>();
    weigh(t);
    // Never so; but the compiler would move the work on the scores behind the next wait.
    if (sums_.weights[0] + sums_.weights[2] < 0) __trap();
    wait_for_products<0>();
    hold(sums_.values);
    release(t - 1);
    if (raised_) scale_values();
    split();
  }
  __device__ void scale_values() {
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums_.values[n][i] *= factor_[i / 2];
  }
  __device__ void finish(int t) {
    hold(sums_.values);
    begin_products();
    multiply_values(t);
    wait_for_products<0>();
    hold(sums_.values);
    release(t);
  }

  const AttentionArgs& a_;
  Memory& memory_;
  const int group_, lane_row_;  // of the group, the lane's first one; the second one is 8 below
  SeenKeys keys_;               // by those
  const int begin_, end_;       // tiles of the block
  int first_;                   // tile that the group sees
  const SeenTiles mine_;
  int first_whole_, end_whole_;  // tiles that all rows of the block see
  std::byte* queries_;
  PromptScores scores_;  // of a tile, then its weights
  uint32_t high_[kTileKeys / 16][4], low_[kTileKeys / 16][4];
  float factor_[2];
  bool raised_;
  uint64_t wild_ = 0;  // results that a value which is not finite belongs to
  Sums<kDim> sums_;
};

/// `least_rows`: sequences of fewer are those of the kernels for few rows.
template <typename Source>
__global__ __launch_bounds__(kPromptThreads,
                             1) void prompt_attention_kernel(const __grid_constant__ AttentionArgs a,
                                                             const __grid_constant__ Source source,
                                                             int least_rows) {
#if LMDEPLOY_HAS_WGMMA
  extern __shared__ __align__(1024) std::byte prompt_memory[];
  auto& memory = *reinterpret_cast<PromptMemory<Source>*>(prompt_memory);
  // The last rows see most keys: they begin, of all heads.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x), kv_head = block % a.num_kv_heads;
  const AttentionTile tile = find_attention_tile<kPromptRows>(a, block / a.num_kv_heads);
  if (tile.num_rows == 0 || tile.sequence_rows < least_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  memory.ring.init(Source::kWriters, kPromptGroups * kGroupThreads / 32);
  if (thread() >= kPromptGroups * kGroupThreads) {
    give_registers<Source::kReaderRegisters>();
    typename Source::Reader(source, a, tile, keys, kv_head, memory).run();
  } else {
    take_registers<kRegistersBesideReader<kPromptGroups, Source::kReaderRegisters>>();
    PromptRows<Source>(a, tile, keys, kv_head, memory).run();
  }
#endif
}

template <typename Source>
void launch_prompt_attention(const AttentionArgs& args, const Source& source, int64_t tokens, int least_rows,
                             cudaStream_t stream) {
  constexpr int kBytes = sizeof(PromptMemory<Source>);
  static_assert(kBytes <= kPromptSharedBytes);
  const int64_t tiles = tokens * args.group / kPromptRows + args.num_seqs;
  allow_shared_memory<prompt_attention_kernel<Source>>(kBytes);
  launch(prompt_attention_kernel<Source>, dim3(static_cast<unsigned>(tiles * args.num_kv_heads)),
         kPromptThreads, kBytes, stream, args, source, least_rows);
}

}  // namespace
}  // namespace lmdeploy::cuda
