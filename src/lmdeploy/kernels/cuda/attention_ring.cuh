// A ring of tiles of keys and values in shared memory that all warps of a block read.
#pragma once

#include "lmdeploy/kernels/cuda/attention_rows.cuh"

namespace lmdeploy::cuda {
namespace {

/// A ring of tiles of keys and values in shared memory. Each tile's places are found one tile ahead, so that
/// reading the block table takes no time of its own.
template <typename Format, int kThreads>
class TileRing {
  static_assert(kThreads >= 2 * kTileKeys);
  static constexpr int kStages = Format::kStages, kPlaces = 4;  // tiles
  static_assert(kStages < kPlaces);

 public:
  static constexpr int kBytes = kStages * Format::kTileBytes + kPlaces * kTileKeys * 8;

  __device__ TileRing(const AttentionArgs& a, const AttentionTile& tile, const Keys& keys, int kv_head,
                      std::byte* memory, int first_tile, int end_tile)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        first_(first_tile),
        end_(end_tile),
        places_(reinterpret_cast<int64_t*>(memory)),
        data_(memory + kPlaces * kTileKeys * 8) {
    if (thread() < 2 * kTileKeys) places_[thread()] = find_place(thread() / kTileKeys);
    found_ = 2;
    __syncthreads();
    // The block table has been there before, and keys of earlier steps.
    const bool all_are_old = (first_ + kStages - 1) * kTileKeys <= tile.first_position;
    if (!all_are_old) wait_for_previous_kernel();
    for (int i = 1; i < kStages; ++i) start_next();
    if (all_are_old) wait_for_previous_kernel();
    find_places();
    store_places();
  }
  /// The next tile: keys, then values; valid until the next call. All threads call it.
  __device__ const std::byte* take() {
    wait_for_copies<kStages - 2>();
    __syncthreads();
    const std::byte* tile = data_ + taken_ % kStages * Format::kTileBytes;
    ++taken_;
    start_next();
    find_places();
    return tile;
  }
  /// After the work on a tile.
  __device__ void release() { store_places(); }

 private:
  __device__ int64_t find_place(int n) const {
    if (first_ + n >= end_) return Keys::kOutside;
    return keys_.template find<Format>(a_, tile_, kv_head_, (first_ + n) * kTileKeys + thread() % kTileKeys);
  }
  __device__ void find_places() {
    if (thread() < kTileKeys) place_ = find_place(found_);
  }
  __device__ void store_places() {
    if (thread() < kTileKeys) places_[found_ % kPlaces * kTileKeys + thread()] = place_;
    ++found_;
  }
  __device__ void start_next() {
    if (first_ + started_ < end_)
      Format::template load_tile<kThreads>(a_, kv_head_, places_ + started_ % kPlaces * kTileKeys,
                                           data_ + started_ % kStages * Format::kTileBytes);
    commit_copies();
    ++started_;
  }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Keys& keys_;
  const int kv_head_, first_, end_;
  int found_ = 0, started_ = 0, taken_ = 0;  // tiles
  int64_t place_ = Keys::kOutside;
  int64_t* places_;  // [kPlaces][kTileKeys]
  std::byte* data_;  // [kStages][Format::kTileBytes]
};

/// sums += weights of 16 keys * their values; keys that no row sees have no weight.
template <typename Format, bool kEdge, typename OfSpan>
__device__ void add_values(OfSpan& sums, const uint32_t (&high)[4], const uint32_t (&low)[4],
                           const std::byte* tile, int k, int first_n, const LaneRows& rows, int first_key) {
  if constexpr (kEdge) {
    const Sight sight(rows, first_key, 16);
    if (sight.none) return;
    if (!sight.all)
      return Format::template multiply_values<true>(sums, high, low, tile, k, first_n, rows, first_key);
  }
  Format::template multiply_values<false>(sums, high, low, tile, k, first_n, rows, first_key);
}

}  // namespace
}  // namespace lmdeploy::cuda
