// Where the keys and values of a layer lie in a paged cache: as plain elements, or as codes.
#pragma once

#include <type_traits>

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cuda {

struct KvPlace {
  int64_t block_elements;  // of all layers
  int64_t k_offset;        // of this layer's keys in a block
  int64_t v_offset;        // of its values; < 0: there are none
  int64_t num_slots;
  int block_len;
  int head_dim;

  KvPlace(const KvCacheView& cache, int64_t layer)
      : block_elements(cache.layout.block_elements()),
        k_offset(layer * cache.layout.layer_elements()),
        v_offset(cache.layout.latent_dim > 0
                     ? -1
                     : k_offset + cache.layout.num_kv_heads * cache.layout.block_len * cache.layout.head_dim),
        num_slots(cache.num_blocks * cache.layout.block_len),
        block_len(static_cast<int>(cache.layout.block_len)),
        head_dim(static_cast<int>(cache.layout.head_dim)) {}

  __device__ bool has(int64_t slot) const { return slot >= 0 && slot < num_slots; }
  /// Of head `head` of the token in `slot`, from its layer's keys or values on.
  __device__ int64_t row(int64_t slot, int head) const {
    return slot / block_len * block_elements + (int64_t{head} * block_len + slot % block_len) * head_dim;
  }
};

/// The kinds of codes, where a float kind's element type stands.
struct U8 {};
struct U4 {};
template <typename Cached>
constexpr bool kIsCodes = std::is_empty_v<Cached>;

/// Rows of codes, in bytes: see KvLayout.
struct CodePlace {
  int64_t block_bytes;  // of all layers
  int64_t k_offset;     // of this layer's first plane of keys in a block
  int64_t v_offset;     // of its first plane of values; < 0: there are none
  int64_t k_plane, v_plane;
  int64_t num_blocks;
  int block_len, head_dim, row_bytes, codes_bytes;
  int key_parts;
  int turned_run;  // of keys
  int max_code;

  CodePlace() = default;
  CodePlace(const KvCacheView& cache, int64_t layer)
      : block_bytes(cache.layout.block_bytes()),
        k_offset(layer * cache.layout.layer_bytes()),
        v_offset(cache.layout.latent_dim > 0
                     ? -1
                     : k_offset + cache.layout.num_kv_heads * cache.layout.key_plane_bytes()),
        k_plane(cache.layout.key_plane_bytes()),
        v_plane(cache.layout.value_plane_bytes()),
        num_blocks(cache.num_blocks),
        block_len(static_cast<int>(cache.layout.block_len)),
        head_dim(static_cast<int>(cache.layout.head_dim)),
        row_bytes(static_cast<int>(cache.layout.row_bytes())),
        codes_bytes(static_cast<int>(cache.layout.codes_bytes())),
        key_parts(static_cast<int>(cache.layout.key_parts())),
        turned_run(static_cast<int>(cache.layout.turned_run())),
        max_code(static_cast<int>(cache.layout.max_code())) {}

  __device__ bool has(int64_t slot) const { return slot >= 0 && slot < num_blocks * block_len; }
  /// A head's plane in its block.
  __device__ int64_t plane(int64_t block, int head, bool is_key) const {
    return block * block_bytes + (is_key ? k_offset + head * k_plane : v_offset + head * v_plane);
  }
  __device__ int64_t codes(int row) const { return int64_t{row} * row_bytes; }
  /// Of the first part's scale and min.
  __device__ int64_t params(int row, bool is_key) const {
    return codes_bytes + int64_t{row} * (is_key ? key_parts : 1) * KvLayout::kParamBytes;
  }
};

}  // namespace lmdeploy::cuda
