// Tiles of a ragged array: each kernel finds its rows itself, so that nothing is read back for a grid.
#pragma once

namespace lmdeploy::cuda {

/// The last of `count` owners whose first tile is at most `tile`; first_tile(i) never falls, first_tile(0) <=
/// tile. All threads of a warp call it for one tile and look at 32 owners at once.
template <typename FirstTile>
__device__ int find_owner(int count, int tile, const FirstTile& first_tile) {
  int low = 0, end = count;
  while (end - low > 1) {
    const int step = (end - low + 31) / 32;
    const int i = low + static_cast<int>(threadIdx.x) % 32 * step;
    const int fitting = __popc(__ballot_sync(~0u, i < end && first_tile(i) <= tile));
    low += (fitting - 1) * step;
    end = min(end, low + step);
  }
  return low;
}

}  // namespace lmdeploy::cuda
