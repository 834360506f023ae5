// Attention of prompts on Hopper over a cache of plain elements: TMA copies the tiles.
#pragma once

#include "lmdeploy/kernels/cuda/attention_prompt.cuh"

namespace lmdeploy::cuda {
namespace {

/// See PromptMemory.
template <typename Type, int kDims>
struct PromptElements {
  using T = Type;
  using Matrix = Type;
  static constexpr int kDim = kDims, kStages = 4, kReaderRegisters = cuda::kReaderRegisters, kWriters = 1;
  static constexpr bool kHasUnits = false;
  struct Memory {};
  class Reader;

  CUtensorMap
      cache;  // as rows of head_dim elements, in boxes of 64 columns and min(block_len, kTileKeys) rows

  explicit PromptElements(const AttentionArgs& a)
      : cache(describe_matrix<T>(a.cache, a.num_blocks * a.block_elements / a.head_dim, a.head_dim,
                                 std::min(a.block_len, kTileKeys))) {}

  /// Rows that do not exist keep what was there: nobody reads their results.
  __device__ static void load_queries(const AttentionArgs& a, const int2* rows, std::byte* queries, float*) {
    for_each_chunk<kDim>(a, rows, queries, [&](int token, int head, int d, uint4* place) {
      copy_async(place, a.q + token * a.q_stride_bytes + (int64_t{head} * a.head_dim + d) * 2, 16);
    });
    commit_copies();
    if (kDim != a.head_dim) clear_padding(a, queries);
    wait_for_copies<0>();
  }

 private:
  /// Columns of the queries beyond head_dim.
  __device__ static void clear_padding(const AttentionArgs& a, std::byte* queries) {
    for (int i = thread() % kGroupThreads; i < kGroupRows * kDim / 8; i += kGroupThreads) {
      const int row = i / (kDim / 8), chunk = i % (kDim / 8);
      if (chunk * 8 >= a.head_dim)
        *reinterpret_cast<uint4*>(queries + chunk / 8 * PromptLayout<kDim>::kRowsPart +
                                  swizzled(row, chunk % 8)) = {};
    }
  }
};

/// A warp has the tiles copied, from the block's first to its last one. A tile is `boxes` boxes of keys that
/// follow each other in the cache; each lane has one part of one of its matrices copied.
template <typename T, int kDim>
class PromptElements<T, kDim>::Reader {
  using Memory = PromptMemory<PromptElements>;
  using Layout = typename Memory::Layout;

 public:
  __device__ Reader(const PromptElements& source, const AttentionArgs& a, const AttentionTile& tile,
                    const Keys& keys, int kv_head, Memory& memory)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        cache_(source.cache),
        memory_(memory),
        box_keys_(min(a.block_len, kTileKeys)),
        boxes_(kTileKeys / box_keys_),
        box_(lane() % boxes_),
        part_(lane() / boxes_ % Layout::kParts),
        matrix_(lane() / boxes_ / Layout::kParts) {}

  __device__ void run() {
    if (thread() / 32 != kPromptGroups * kGroupThreads / 32) return wait_for_previous_kernel();
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
    std::byte* to = memory_.tiles[memory_.ring.stage(use)] + matrix_ * Layout::kMatrix +
                    part_ * Layout::kKeysPart + box_ * box_bytes;
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

}  // namespace

template <typename Format>
void run_prompt_attention(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  launch_prompt_attention(args, PromptElements<typename Format::T, Format::kDim>(args), tokens, least_rows,
                          stream);
}

}  // namespace lmdeploy::cuda
