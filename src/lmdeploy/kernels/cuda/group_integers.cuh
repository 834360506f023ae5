// linear for some dozens to hundreds of tokens with weights of 4 or 8 bits on Hopper: warpgroups multiply by
// wgmma, which takes the widened weights from registers and the tokens from shared memory, where they are
// copied by TMA a unit of columns at a time. Where rows are too few for all multiprocessors, the blocks of a
// cluster share the columns.
#pragma once

#include "lmdeploy/kernels/cuda/integer_tile.cuh"
#include "lmdeploy/kernels/cuda/row_clusters.cuh"
#include "lmdeploy/kernels/cuda/tensor_copy.cuh"

namespace lmdeploy::cuda {
namespace {

/// Up to 64 tokens 16 warps share what is copied for them; more tokens leave registers for 8.
template <int kTokens>
using GroupBlock = RowBlock<(kTokens > 64 ? 8 : 16)>;

/// Shared memory of a block, until its sums take it: a ring of units of columns.
template <typename W, int kTokens>
struct GroupMemory {
  static constexpr int kParts = W::kUnitCols / 64, kPart = kTokens * kSwizzledRow;
  static constexpr int kTokenBytes = kParts * kPart,
                       kWeightBytes = GroupBlock<kTokens>::kWarps * W::kUnitBytes;
  static constexpr int kMost = 200 << 10, kStages = kMost / (kTokenBytes + kWeightBytes);
  static_assert(kStages >= 4);

  std::byte tokens[kStages][kTokenBytes];    // [kParts] parts of 64 columns, swizzled
  std::byte weights[kStages][kWeightBytes];  // of each warp's tile
  CopyRing<kStages> ring;
};

/// The warp that has a block's units copied, a lane for each tile of weights.
template <typename W, int kTokens, bool kGlu>
class GroupReader {
  using Memory = GroupMemory<W, kTokens>;
  using Block = GroupBlock<kTokens>;
  static_assert(Block::kWarps <= 32);

 public:
  __device__ GroupReader(const FewTokensArgs& a, const CUtensorMap& x, int box_tokens, Memory& memory,
                         int row_block, int first_token, int first, int end)
      : memory_(memory),
        x_(x),
        bytes_(Memory::kWeightBytes + Memory::kParts * box_tokens * kSwizzledRow),
        first_token_(first_token),
        first_(first),
        count_(end - first) {
    const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
    const int64_t tile = tile_of_warp<Block, kGlu>(a.rows, row_block, min(lane(), Block::kWarps - 1));
    weights_ = static_cast<const std::byte*>(a.weight) + (tile * units + first) * W::kUnitBytes;
  }
  __device__ void run() {
    const int ahead = min(Memory::kStages, count_);
    for (int n = 0; n < ahead; ++n) start_weights(n);
    wait_for_previous_kernel();  // weights have been there before
    for (int n = 0; n < ahead; ++n) start_tokens(n);
    for (int n = ahead; n < count_; ++n) {
      memory_.ring.wait_for_place(n);
      start_weights(n);
      start_tokens(n);
    }
  }

 private:
  __device__ void start_weights(int n) {
    CopyBarrier& full = memory_.ring.full(n);
    if (lane() == 0) full.arrive_and_expect(bytes_);
    __syncwarp();
    if (lane() < Block::kWarps)
      copy_bytes(shared_address(memory_.weights[memory_.ring.stage(n)] + lane() * W::kUnitBytes),
                 weights_ + int64_t{n} * W::kUnitBytes, W::kUnitBytes, full);
  }
  __device__ void start_tokens(int n) {
    if (lane() < Memory::kParts)
      copy_box(shared_address(memory_.tokens[memory_.ring.stage(n)]) + lane() * Memory::kPart, x_,
               (first_ + n) * W::kUnitCols + lane() * 64, first_token_, memory_.ring.full(n));
  }

  Memory& memory_;
  const CUtensorMap& x_;
  const std::byte* weights_;                       // of the lane's tile
  const int bytes_, first_token_, first_, count_;  // bytes of a unit
};

/// Multiplies a block's units, of which the first one has `columns`; all warps but the reader's group call
/// it.
template <typename T, typename W, int kTokens>
__device__ void multiply_units(GroupMemory<W, kTokens>& memory, int count, int columns,
                               float (&sums)[kTokens / 8][4]) {
  using Memory = GroupMemory<W, kTokens>;
#pragma unroll 1
  for (int n = 0; n < count; ++n) {
    const int stage = memory.ring.stage(n);
    memory.ring.wait_for_copies(n);
    IntegerUnit<T, W> integers;
    integers.load_shared(shared_address(memory.weights[stage] + warp() * W::kUnitBytes));
    const SwizzledMatrix tokens(shared_address(memory.tokens[stage]), kSwizzledRows, 16);
    integers.multiply_together(sums, columns - n * W::kUnitCols, tokens, Memory::kPart);
    memory.ring.release(n);
  }
}

/// x: the tokens in the order of order_tokens_kernel, in boxes of 64 columns and box_tokens tokens.
template <typename T, typename W, int kTokens, bool kGlu>
__global__ __launch_bounds__(GroupBlock<kTokens>::kThreads + kGroupThreads,
                             1) void group_integers_kernel(const __grid_constant__ FewTokensArgs a,
                                                           const __grid_constant__ CUtensorMap x,
                                                           int box_tokens, Activation activation) {
#if LMDEPLOY_HAS_WGMMA
  using Block = GroupBlock<kTokens>;
  extern __shared__ __align__(1024) std::byte group_memory[];
  auto& memory = *reinterpret_cast<GroupMemory<W, kTokens>*>(group_memory);
  const int split = static_cast<int>(blockIdx.x), splits = static_cast<int>(gridDim.x),
            row_block = static_cast<int>(blockIdx.y), first_token = static_cast<int>(blockIdx.z) * kTokens;
  const int units = (a.cols + W::kUnitCols - 1) / W::kUnitCols;
  const int first = units * split / splits, end = units * (split + 1) / splits;
  memory.ring.init(1, Block::kWarps);
  if (threadIdx.x >= Block::kThreads) {
    give_registers<kReaderRegisters>();
    if (threadIdx.x / 32 == Block::kWarps)
      GroupReader<W, kTokens, kGlu>(a, x, box_tokens, memory, row_block, first_token, first, end).run();
    else
      wait_for_previous_kernel();
    return;
  }
  take_registers<kRegistersBesideReader<Block::kThreads / kGroupThreads>>();
  wait_for_previous_kernel();
  float sums[kTokens / 8][4] = {};
  multiply_units<T, W, kTokens>(memory, end - first, a.cols - first * W::kUnitCols, sums);
  sync_block<Block>();
  finish_cluster<T, Block, kTokens, kGlu>(a, activation, row_block, first_token, sums,
                                          reinterpret_cast<float*>(group_memory));
#endif
}

/// Four pieces of eight columns as the products of a step of 32 want them: see integer_tile.cuh.
__device__ inline void order_step(const uint4 (&from)[4], uint4 (&to)[4]) {
  const auto word = [&](int piece, int i) { return (&from[piece].x)[i]; };
#pragma unroll
  for (int i = 0; i < 4; ++i) to[i] = {word(0, i), word(1, i), word(2, i), word(3, i)};
}

/// out[token] = x[token] in that order, with zeros up to whole 64 columns. Elements have 16 bits.
template <typename T>
__global__ void order_tokens_kernel(T* out, const T* x, int64_t x_stride, int tokens, int cols,
                                    int out_cols) {
  wait_for_previous_kernel();
  const int k = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * 32;
  if (k >= out_cols) return;
  for (int t = static_cast<int>(blockIdx.y); t < tokens; t += static_cast<int>(gridDim.y)) {
    const T* row = x + t * x_stride + k;
    uint4 from[4], to[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      from[i] = k + i * 8 < cols ? *reinterpret_cast<const uint4*>(row + i * 8) : uint4{};
    order_step(from, to);
    auto* place = reinterpret_cast<uint4*>(out + int64_t{t} * out_cols + k);
#pragma unroll
    for (int i = 0; i < 4; ++i) place[i] = to[i];
  }
}

template <typename T, typename W, int kTokens, bool kGlu>
void launch_group_integers(const FewTokensArgs& args, const Meeting& meeting, cudaStream_t stream) {
  using Block = GroupBlock<kTokens>;
  constexpr int kBytes =
      std::max<int>(sizeof(GroupMemory<W, kTokens>), kTokens * kSumStride<Block> * int{sizeof(float)});
  constexpr int kThreads = Block::kThreads + kGroupThreads;
  constexpr auto kernel = group_integers_kernel<T, W, kTokens, kGlu>;
  allow_shared_memory<kernel>(kBytes);
  const int out_cols = static_cast<int>(ceil_div(args.cols, 64) * 64);
  T* ordered = reinterpret_cast<T*>(meeting.scratch->bytes(int64_t{args.tokens} * out_cols * 2));
  constexpr int kOrderThreads = 128;
  launch(
      order_tokens_kernel<T>,
      dim3(static_cast<unsigned>(ceil_div(out_cols, kOrderThreads * 32)), static_cast<unsigned>(args.tokens)),
      kOrderThreads, 0, stream, ordered, static_cast<const T*>(args.x), args.x_stride, args.tokens, args.cols,
      out_cols);
  // Rows of a box that do not exist would take as long as those that do.
  const int box_tokens = static_cast<int>(std::min<int64_t>(kTokens, ceil_div(args.tokens, 8) * 8));
  const CUtensorMap x = describe_matrix<T>(ordered, args.tokens, out_cols, box_tokens);
  const int64_t row_blocks = Block::template count<kGlu>(args.rows),
                token_blocks = ceil_div(args.tokens, kTokens);
  const auto splits =
      static_cast<unsigned>(choose_cluster(row_blocks * token_blocks, ceil_div(args.cols, W::kUnitCols),
                                           clusters_at_once<kernel>(kThreads, kBytes)));
  launch_clusters(splits, kernel,
                  dim3(splits, static_cast<unsigned>(row_blocks), static_cast<unsigned>(token_blocks)),
                  kThreads, kBytes, stream, args, x, box_tokens, args.glu.value_or(Activation::kSilu));
}

}  // namespace

template <typename T, int kBits>
void run_group_integers(const FewTokensArgs& args, const IntegerFormat& format, const Meeting& meeting,
                        cudaStream_t stream) {
  with_integers_of<kBits>(format, [&]<typename W>(Type<W>) {
    if constexpr (W::kScale != GroupScale::kScaleMin) {
      const auto run = [&]<int kTokens>(std::integral_constant<int, kTokens>) {
        if (args.glu)
          launch_group_integers<T, W, kTokens, true>(args, meeting, stream);
        else
          launch_group_integers<T, W, kTokens, false>(args, meeting, stream);
      };
      if (args.tokens <= 64)
        run(std::integral_constant<int, 64>());
      else
        run(std::integral_constant<int, 128>());
    }
  });
}

}  // namespace lmdeploy::cuda
