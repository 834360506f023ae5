// linear for few tokens: a weight is read once, as fast as memory gives it.
//
// One or two blocks on each multiprocessor multiply all tiles of 16 rows that fall to them. A tile's units of
// columns are dealt out to strands, which warps multiply; the strands' sums are added up at last, in order. A
// warp has a ring of units in shared memory, which it fills before the kernel before this one has ended:
// weights do not depend on it. Several tiles at a time, so that tokens are read less often.
#pragma once

#include "lmdeploy/kernels/cuda/few_tokens.h"
#include "lmdeploy/kernels/cuda/few_tokens_results.cuh"
#include "lmdeploy/kernels/cuda/launch.cuh"
#include "lmdeploy/kernels/cuda/mma.cuh"

namespace lmdeploy::cuda {
namespace {

/// Tiles of 16 outputs that a block has: `each`, and one more the first `more` of them. Divided on the host:
/// a block's first copies do not wait for it.
struct BlockShares {
  int each, more;
  __device__ int first(int block) const { return block * each + min(block, more); }
};

/// `Units`: how a weight is cut and multiplied:
///   kCols, kBytes  of a unit of 16 rows
///   kStrands       of a tile; a block has a warp for each, or fewer where shared memory is short
///   kBlocks        of a multiprocessor
///   kRingBytes     of a warp
///   kMostAhead     tiles of tokens that are read one unit ahead
///   kMostTiles     of weights that are multiplied at once with more than 8 tokens
///   kOwn           a lane reads what it has copied itself, and nothing else
///   kUnitStep      bytes from one unit of a tile to the next
///   row_bytes      of the weight
///   first(a)       what a lane copies from in the first unit of the first tile
///   copy(slot, from, rows_left, columns_left)    starts to copy a unit; all lanes
///   multiply<kTokenTiles>(sums, slot, columns_left, x)
/// For glu() a tile of 16 outputs is two of weights: gates, and what they gate.
template <typename T, typename Units, int kTokenTiles, bool kGlu>
class WeightStream {
  static constexpr int kParts = kGlu ? 2 : 1;
  static constexpr int kTiles = kTokenTiles == 1 ? 4 : Units::kMostTiles,
                       kOutputTiles = kTiles / kParts;  // of a pass
  static constexpr int kTokens = 8 * kTokenTiles;
  static constexpr int kDepth = Units::kRingBytes / Units::kBytes, kSteps = Units::kCols / 32;
  static constexpr int kStep = Units::kStrands * Units::kCols;  // columns from a strand's unit to its next
  static constexpr int kTokenSums = kTiles * 16 + 4;            // a store's lanes meet different banks
  static constexpr int kStrandSums = kTokens * kTokenSums;
  static constexpr bool kAhead = kTokenTiles <= Units::kMostAhead;  // tokens, of a unit

 public:
  static constexpr int kRingBytes = kDepth * Units::kBytes;
  static constexpr int kSumBytes = Units::kStrands * kStrandSums * static_cast<int>(sizeof(float));

  __device__ WeightStream(const FewTokensArgs& a, Activation activation, const BlockShares& shares,
                          float* memory)
      : a_(a),
        activation_(activation),
        units_(a),
        warps_(static_cast<int>(blockDim.x) / 32),
        outputs_(kGlu ? a.rows / 2 : a.rows),
        num_strands_(min(Units::kStrands, (a.cols + Units::kCols - 1) / Units::kCols)),
        first_tile_(shares.first(static_cast<int>(blockIdx.x))),
        end_tile_(shares.first(static_cast<int>(blockIdx.x) + 1)),
        sums_(memory),
        ring_(shared_address(memory) + static_cast<uint32_t>(kSumBytes + warp() * kRingBytes)),
        slot_(ring_) {
    asm volatile("" : "+r"(ring_), "+r"(slot_));  // computed once
    next_.first = warp() < num_strands_ ? first_tile_ : end_tile_;
    next_.pass = units_.first(a) + int64_t{first_tile_} * 16 * units_.row_bytes;
    start_strand(warp());
#pragma unroll 1
    for (int i = 0; i < kDepth; ++i) start_next();
  }

  __device__ void run() {
    wait_for_previous_kernel();
    for (int first = first_tile_; first < end_tile_; first += kOutputTiles) {
      for (int token = 0; token < a_.tokens; token += kTokens) {
        __syncthreads();  // the sums before have been read
        for (int strand = warp(); strand < num_strands_; strand += warps_) run_strand(strand, first, token);
        __syncthreads();
        finish(first, token);
      }
    }
  }

 private:
  // The unit that is copied next. Order: as run() multiplies them.
  struct Place {
    int first;              // output tile of the pass; end_tile_: there is no unit left
    const std::byte* pass;  // where its first tile begins
    int token = 0, strand, tile;
    int columns_left;              // of the strand
    const std::byte *unit, *from;  // in the first tile, in this one
  };

  __device__ int tiles_of_pass(int first) const { return min(kOutputTiles, end_tile_ - first) * kParts; }

  __device__ void start_next() {
    if (next_.first < end_tile_) {
      const int row = (next_.first + next_.tile / kParts) * 16;
      units_.copy(slot_, next_.from, outputs_ - row, next_.columns_left);
      advance();
    }
    commit_copies();
    if ((slot_ += Units::kBytes) == ring_ + kRingBytes) slot_ = ring_;
  }
  __device__ void advance() {
    const int64_t tile_bytes = 16 * units_.row_bytes, part_bytes = kGlu ? outputs_ * units_.row_bytes : 0;
    if (++next_.tile < tiles_of_pass(next_.first)) {
      next_.from += !kGlu ? tile_bytes : next_.tile % 2 != 0 ? part_bytes : tile_bytes - part_bytes;
      return;
    }
    next_.tile = 0;
    next_.columns_left -= kStep;
    next_.unit += Units::kStrands * Units::kUnitStep;
    next_.from = next_.unit;
    if (next_.columns_left > 0) return;
    if (next_.strand + warps_ < num_strands_) return start_strand(next_.strand + warps_);
    if ((next_.token += kTokens) >= a_.tokens) {
      next_.token = 0;
      next_.first += kOutputTiles;
      next_.pass += kOutputTiles * tile_bytes;
    }
    start_strand(warp());
  }
  __device__ void start_strand(int strand) {
    next_.strand = strand;
    next_.tile = 0;
    next_.columns_left = a_.cols - strand * Units::kCols;
    next_.unit = next_.from = next_.pass + strand * Units::kUnitStep;
  }

  // Output tiles from `first` on for kTokens tokens; the last token stands for those that are not there.
  __device__ void run_strand(int strand, int first, int first_token) {
    const T* tokens[kTokenTiles];
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
      tokens[t] = static_cast<const T*>(a_.x) +
                  min(first_token + t * 8 + lane() / 4, a_.tokens - 1) * a_.x_stride + lane() % 4 * 8 +
                  strand * Units::kCols;
    const int tiles = tiles_of_pass(first);
    float sums[kTiles][kTokenTiles][4] = {};
    uint4 x[kSteps][kTokenTiles];
    int columns_left = a_.cols - strand * Units::kCols;
    if constexpr (kAhead) load_tokens(x, tokens, columns_left);
    for (; columns_left > 0; columns_left -= kStep) {
      uint4 next_x[kSteps][kTokenTiles];
      if constexpr (kAhead)
        load_tokens(next_x, tokens, columns_left - kStep);
      else
        load_tokens(x, tokens, columns_left);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        if (i >= tiles) break;  // all lanes
        wait_for_copies<kDepth - 1>();
        if constexpr (!Units::kOwn) __syncwarp();
        Units::template multiply<kTokenTiles>(sums[i], slot_, columns_left, x);
        if constexpr (!Units::kOwn) __syncwarp();
        start_next();
      }
      if constexpr (kAhead) {
#pragma unroll
        for (int s = 0; s < kSteps; ++s)
#pragma unroll
          for (int t = 0; t < kTokenTiles; ++t) x[s][t] = next_x[s][t];
      }
    }
    float* own = sums_ + strand * kStrandSums + lane() / 4;
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int token = t * 8 + lane() % 4 * 2 + n % 2;
        if (first_token + token >= a_.tokens) continue;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) own[token * kTokenSums + i * 16 + n / 2 * 8] = sums[i][t][n];
      }
  }

  // Of the next unit; zeros beyond the columns.
  __device__ void load_tokens(uint4 (&x)[kSteps][kTokenTiles], const T* (&tokens)[kTokenTiles],
                              int columns_left) const {
    if (columns_left >= Units::kCols) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t) x[s][t] = *reinterpret_cast<const uint4*>(tokens[t] + s * 32);
    } else {
      columns_left -= lane() % 4 * 8;
#pragma unroll
      for (int s = 0; s < kSteps; ++s)
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
          x[s][t] = s * 32 < columns_left ? *reinterpret_cast<const uint4*>(tokens[t] + s * 32) : uint4{};
    }
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) tokens[t] += kStep;
  }

  __device__ void finish(int first, int first_token) const {
    constexpr int kOutputs = kOutputTiles * 16;
    const int outputs = min(kTokens, a_.tokens - first_token) * kOutputs;
    for (int i = static_cast<int>(threadIdx.x); i < outputs; i += static_cast<int>(blockDim.x)) {
      const int tile = i % kOutputs / 16, row = (first + tile) * 16 + i % 16;
      if (first + tile >= end_tile_ || row >= outputs_) continue;
      const float* sum = sums_ + i / kOutputs * kTokenSums + tile * kParts * 16 + i % 16;
      store_output<kGlu, T>(a_, a_.bias, activation_, first_token + i / kOutputs, row, total(sum),
                            kGlu ? total(sum + 16) : 0);
    }
  }
  __device__ float total(const float* of_first_strand) const {
    float total = 0;
#pragma unroll
    for (int s = 0; s < Units::kStrands; ++s)
      if (s < num_strands_) total += of_first_strand[s * kStrandSums];
    return total;
  }

  const FewTokensArgs& a_;
  const Activation activation_;
  const Units units_;
  const int warps_, outputs_, num_strands_, first_tile_, end_tile_;
  float* const sums_;     // [kStrands][kTokens][kTokenSums]
  uint32_t ring_, slot_;  // the warp's; place of the unit that is copied, and multiplied, next
  Place next_;
};

template <typename T, typename Units, int kTokenTiles, bool kGlu>
__global__ __launch_bounds__(Units::kStrands * 32, Units::kBlocks) void weight_stream_kernel(
    const __grid_constant__ FewTokensArgs a, Activation activation, BlockShares shares) {
#if LMDEPLOY_HAS_MMA
  extern __shared__ float4 memory[];
  WeightStream<T, Units, kTokenTiles, kGlu>(a, activation, shares, reinterpret_cast<float*>(memory)).run();
#endif
}

template <typename T, typename Units, int kTokenTiles, bool kGlu>
void launch_weight_stream(const FewTokensArgs& args, const DeviceLimits& device, cudaStream_t stream) {
  using Stream = WeightStream<T, Units, kTokenTiles, kGlu>;
  constexpr int kReserved = 1 << 10;  // of a block
  constexpr auto kernel = weight_stream_kernel<T, Units, kTokenTiles, kGlu>;
  int warps = Units::kStrands;
  const auto bytes = [&] { return Stream::kSumBytes + warps * Stream::kRingBytes; };
  while (warps > 1 && bytes() > device.shared_bytes / Units::kBlocks - kReserved) warps /= 2;
  allow_shared_memory<kernel>(bytes());
  const int64_t tiles = ceil_div(args.glu ? args.rows / 2 : args.rows, 16);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(tiles, device.num_sms * Units::kBlocks));
  const BlockShares shares = {static_cast<int>(tiles / blocks), static_cast<int>(tiles % blocks)};
  launch(kernel, blocks, warps * 32, bytes(), stream, args, args.glu.value_or(Activation::kSilu), shares);
}

}  // namespace
}  // namespace lmdeploy::cuda
