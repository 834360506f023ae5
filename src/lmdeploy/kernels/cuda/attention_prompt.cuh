// Attention on tensor cores, prompts on Hopper (the overlaps of Shah et al. 2024, FlashAttention-3): two
// warpgroups with 64 query rows each multiply tiles of 64 keys by wgmma, a warp of its own has the tiles
// copied to shared memory ahead of them. While the tensor cores multiply a tile's weights with its values the
// next tile's scores become weights.
#pragma once

#include "lmdeploy/kernels/cuda/attention_elements.cuh"
#include "lmdeploy/kernels/cuda/tensor_copy.cuh"
#include "lmdeploy/kernels/cuda/wgmma.cuh"

namespace lmdeploy::cuda {
namespace {

constexpr int kGroupRows = 64, kPromptGroups = 2;
constexpr int kPromptRows = kPromptGroups * kGroupRows;
constexpr int kPromptThreads = (kPromptGroups + 1) * kGroupThreads;  // a warp of the last group reads

/// Shared memory of a block. Matrices are [kDim / 64] parts of rows of 64 elements, swizzled.
template <typename T, int kDim>
struct PromptMemory {
  static constexpr int kParts = kDim / 64, kStages = 4;
  static constexpr int kRowsPart = kGroupRows * kSwizzledRow, kKeysPart = kTileKeys * kSwizzledRow;
  static constexpr int kMatrix = kParts * kKeysPart;  // a tile's keys, or its values

  std::byte queries[kPromptGroups][kParts * kRowsPart];  // at last their results
  std::byte tiles[kStages][2 * kMatrix];                 // keys, then values
  CopyRing<kStages> ring;
  int2 rows[kPromptGroups][kGroupRows];  // token in q and head of each
};

/// The warp that has a block's tiles copied, from its first to its last one. A tile is `boxes` boxes of keys
/// that follow each other in the cache; each lane has one part of one of its matrices copied.
template <typename T, int kDim>
class PromptReader {
  using Memory = PromptMemory<T, kDim>;

 public:
  __device__ PromptReader(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                          const CUtensorMap& cache, Memory& memory)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        cache_(cache),
        memory_(memory),
        box_keys_(min(a.block_len, kTileKeys)),
        boxes_(kTileKeys / box_keys_),
        box_(lane() % boxes_),
        part_(lane() / boxes_ % Memory::kParts),
        matrix_(lane() / boxes_ / Memory::kParts) {}

  __device__ void run() {
    int64_t place = find(keys_.first_tile());
    wait_for_previous_kernel();  // the block table has been there before
    for (int t = keys_.first_tile(), use = 0; t < keys_.end_tile(); ++t, ++use) {
      memory_.ring.wait_for_place(use);
      start(place, use);
      place = find(t + 1);
    }
  }

 private:
  /// Row of the cache where the lane's box of a tile begins, or what Keys::find() says.
  __device__ int64_t find(int t) const {
    const int first = t * kTileKeys + box_ * box_keys_;
    if (matrix_ > 1 || first >= keys_.end || first + box_keys_ <= keys_.first) return Keys::kOutside;
    const int64_t block = a_.block_table[tile_.sequence * a_.table_stride + first / a_.block_len];
    if (block < 0 || block >= a_.num_blocks) return Keys::kNowhere;
    return (block * a_.block_elements + (matrix_ == 0 ? a_.k_offset : a_.v_offset)) / a_.head_dim +
           kv_head_ * a_.block_len + first % a_.block_len;
  }
  /// Boxes that do not exist leave what was there: nobody's weights.
  __device__ void start(int64_t place, int use) {
    const int box_bytes = box_keys_ * kSwizzledRow;
    std::byte* to = memory_.tiles[memory_.ring.stage(use)] + matrix_ * Memory::kMatrix +
                    part_ * Memory::kKeysPart + box_ * box_bytes;
    if (place == Keys::kNowhere) {
      for (int i = 0; i < box_bytes; i += 16) *reinterpret_cast<uint4*>(to + i) = kNaNs;
      show_to_products();
    }
    const int boxes = __popc(__ballot_sync(~0u, place >= 0));
    if (lane() == 0) memory_.ring.full(use).arrive_and_expect(boxes * box_bytes);
    __syncwarp();
    if (place >= 0)
      copy_box(shared_address(to), cache_, part_ * 64, static_cast<int>(place), memory_.ring.full(use));
  }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Keys& keys_;
  const int kv_head_;
  const CUtensorMap& cache_;
  Memory& memory_;
  const int box_keys_, boxes_, box_, part_, matrix_;
};

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
          values + d / 64 * PromptMemory<T, kDim>::kKeysPart + swizzled(key, d % 64 / 8) + d % 8 * 2));
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
template <typename T, int kDim>
class PromptRows {
  using Memory = PromptMemory<T, kDim>;

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
    load_queries();
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
  /// body(token, head, element, place) for the thread's part of the rows that exist, 16 bytes at a time:
  /// where they are in q and out, and in queries_.
  template <typename Body>
  __device__ void for_each_chunk(const Body& body) const {
    constexpr int kPerRow = kDim / 8, kRowsAtOnce = kGroupThreads / kPerRow;
    const int chunk = thread() % kPerRow, first_row = thread() % kGroupThreads / kPerRow;
    std::byte* part = queries_ + chunk / 8 * Memory::kRowsPart;
    if (chunk * 8 >= a_.head_dim) return;
#pragma unroll
    for (int i = 0; i < kGroupRows / kRowsAtOnce; ++i) {
      const int row = first_row + i * kRowsAtOnce;
      const int2 place = memory_.rows[group_][row];
      if (place.x >= 0)
        body(place.x, place.y, chunk * 8, reinterpret_cast<uint4*>(part + swizzled(row, chunk % 8)));
    }
  }
  __device__ void list_rows(const AttentionTile& tile, int kv_head) {
    const int row = thread() % kGroupThreads, r = group_ * kGroupRows + row;
    if (row < kGroupRows)
      memory_.rows[group_][row] =
          r < tile.num_rows ? int2{tile.token(r, a_.group), kv_head * a_.group + tile.head(r, a_.group)}
                            : int2{-1, 0};
    sync();
  }
  /// Rows that do not exist keep what was there: nobody reads their results.
  __device__ void load_queries() {
    for_each_chunk([&](int token, int head, int d, uint4* place) {
      copy_async(place, a_.q + token * a_.q_stride_bytes + (int64_t{head} * a_.head_dim + d) * 2, 16);
    });
    commit_copies();
    if (kDim != a_.head_dim) clear_padding();
    wait_for_copies<0>();
    show_to_products();
    sync();
  }
  /// Columns of the queries beyond head_dim.
  __device__ void clear_padding() {
    for (int i = thread() % kGroupThreads; i < kGroupRows * kDim / 8; i += kGroupThreads) {
      const int row = i / (kDim / 8), chunk = i % (kDim / 8);
      if (chunk * 8 >= a_.head_dim)
        *reinterpret_cast<uint4*>(queries_ + chunk / 8 * Memory::kRowsPart + swizzled(row, chunk % 8)) = {};
    }
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
        *reinterpret_cast<uint32_t*>(queries_ + n / 8 * Memory::kRowsPart + swizzled(row, n % 8) +
                                     lane() % 4 * 4) =
            pack<T>(sums_.values[n][2 * i] * factor, sums_.values[n][2 * i + 1] * factor);
    }
    sync();
    for_each_chunk([&](int token, int head, int d, const uint4* place) {
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
    wild_ |= take_wild_values<T, kDim>(keys, t * kTileKeys, tile(t) + Memory::kMatrix, [](bool mine) {
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
      multiply_group<T, 0>(scores_, queries + (k / 4 * Memory::kRowsPart + k % 4 * 32),
                           keys + (k / 4 * Memory::kKeysPart + k % 4 * 32), k > 0);
    commit_products();
  }
  /// Starts values += weights * values of tile t.
  __device__ void multiply_values(int t) {
    const SwizzledMatrix values(shared_address(tile(t)) + Memory::kMatrix, kSwizzledRows, Memory::kKeysPart);
#pragma unroll
    for (int k = 0; k < kTileKeys / 16; ++k) {
      multiply_group<T, 1>(sums_.values, high_[k], values + k * 2 * kSwizzledRows, true);
      multiply_group<T, 1>(sums_.values, low_[k], values + k * 2 * kSwizzledRows, true);
    }
    commit_products();
  }
  /// Scores of tile t, which are there, become weights.
  __device__ void weigh(int t) {
    hold(scores_);
    const int first_key = t * kTileKeys;
    const bool plain = has_plain_scores(a_);
    const float scale = plain ? a_.scale * kLog2e : 1;
    if (!plain) finish_scores(first_key);
    if (t < mine_.first_whole || t >= mine_.end_whole) hide(first_key);
    float max[2];
    find_largest(max);
    for (float& m : max) m *= scale;
    raised_ = raise_max(sums_.max, max, factor_);
    const float reference[2] = {-reference_of(sums_.max[0]), -reference_of(sums_.max[1])};
    float sum[4] = {sums_.weights[0] * factor_[0], 0, sums_.weights[2] * factor_[1], 0};
#pragma unroll
    for (int n = 0; n < kTileKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores_[n][i] = exp2_fast(__fmaf_rn(scores_[n][i], scale, reference[i / 2]));
        sum[i] += scores_[n][i];
      }
    sums_.weights[0] = sum[0] + sum[1], sums_.weights[2] = sum[2] + sum[3];
  }
  __device__ void finish_scores(int first_key) {
    PromptScores copy;  // only this one has an address: it alone is in memory
#pragma unroll
    for (int i = 0; i < kTileKeys / 2; ++i) copy[i / 4][i % 4] = scores_[i / 4][i % 4];
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
        split_weights<T>(scores_[2 * k + part / 2][part % 2 * 2], scores_[2 * k + part / 2][part % 2 * 2 + 1],
                         high_[k][part], low_[k][part]);
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

/// `cache`: as rows of head_dim elements, in boxes of 64 columns and min(block_len, kTileKeys) rows.
/// `least_rows`: sequences of fewer are the narrow kernel's.
template <typename T, int kDim>
__global__ __launch_bounds__(kPromptThreads,
                             1) void prompt_attention_kernel(const __grid_constant__ AttentionArgs a,
                                                             const __grid_constant__ CUtensorMap cache,
                                                             int least_rows) {
#if LMDEPLOY_HAS_WGMMA
  extern __shared__ __align__(1024) std::byte prompt_memory[];
  auto& memory = *reinterpret_cast<PromptMemory<T, kDim>*>(prompt_memory);
  // The last rows see most keys: they begin, of all heads.
  const int block = static_cast<int>(gridDim.x - 1 - blockIdx.x), kv_head = block % a.num_kv_heads;
  const AttentionTile tile = find_attention_tile<kPromptRows>(a, block / a.num_kv_heads);
  if (tile.num_rows == 0 || tile.sequence_rows < least_rows) return wait_for_previous_kernel();
  const Keys keys(a, tile);
  memory.ring.init(1, kPromptGroups * kGroupThreads / 32);
  if (thread() >= kPromptGroups * kGroupThreads) {
    give_registers<kReaderRegisters>();
    if (thread() / 32 == kPromptGroups * kGroupThreads / 32)
      PromptReader<T, kDim>(a, tile, keys, kv_head, cache, memory).run();
    else
      wait_for_previous_kernel();
  } else {
    take_registers<kRegistersBesideReader<kPromptGroups>>();
    PromptRows<T, kDim>(a, tile, keys, kv_head, memory).run();
  }
#endif
}

/// The cache's elements as prompt_attention_kernel() copies them.
template <typename T>
CUtensorMap describe_cache(const AttentionArgs& a) {
  return describe_matrix<T>(a.cache, a.num_blocks * a.block_elements / a.head_dim, a.head_dim,
                            std::min(a.block_len, kTileKeys));
}

}  // namespace

template <typename T, int kDim>
void run_prompt_attention(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  constexpr int kBytes = sizeof(PromptMemory<T, kDim>);
  const int64_t tiles = tokens * args.group / kPromptRows + args.num_seqs;
  allow_shared_memory<prompt_attention_kernel<T, kDim>>(kBytes);
  launch(prompt_attention_kernel<T, kDim>, dim3(static_cast<unsigned>(tiles * args.num_kv_heads)),
         kPromptThreads, kBytes, stream, args, describe_cache<T>(args), least_rows);
}

}  // namespace lmdeploy::cuda
