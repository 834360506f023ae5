// Attention of prompts on Hopper over a cache in codes: a warpgroup makes f16 of the codes, on their way from
// one place in shared memory to another. scale * code + min is rounded once; queries are f16 in units of
// their row, and turned where keys are, so that all products are those of f16.
#pragma once

#include "lmdeploy/kernels/cuda/attention_codes.cuh"
#include "lmdeploy/kernels/cuda/attention_prompt.cuh"

namespace lmdeploy::cuda {
namespace {

/// See PromptMemory.
template <typename Type, int kDims, int kBitsOf>
struct PromptCodes {
  using T = Type;
  using Matrix = __half;
  static constexpr int kDim = kDims, kBits = kBitsOf, kStages = 3, kReaderRegisters = 56;
  static constexpr int kWriters = kGroupThreads / 32;
  static constexpr bool kHasUnits = true;
  using Format = Codes<T, kDim, kBits>;
  static constexpr int kChunks = Format::kChunks, kKeyParts = Format::kKeyParts;
  static constexpr int kRowsAtOnce = kGroupThreads / kChunks;  // of 16 bytes a thread
  static constexpr int kEach = kTileKeys / kRowsAtOnce;        // chunks of keys of a thread, and of values

  /// What is on its way: a thread's own codes, and everybody's scales and mins.
  static constexpr int kAhead = 2;
  struct Memory {
    uint4 codes[kAhead][2][kEach][kGroupThreads];  // of keys and values
    uint2 params[kAhead + 1][2][kTileKeys];
  };
  class Reader;

  /// Two threads have a row, of which each has half of the elements.
  __device__ static void load_queries(const AttentionArgs& a, const int2* rows, std::byte* queries,
                                      float* units) {
    const int row = thread() % kGroupThreads / 2, half = thread() % 2;
    const int2 place = rows[row];
    float x[kDim / 2];
    read_half(a, place, half, x);
    if constexpr (kBits == 4) {  // as keys are, but for the factor
      turn_elements(x);
      turn_with_lane(x, 1);
    }
    float most = 0;
#pragma unroll
    for (int j = 0; j < kDim / 2; ++j)
      if (fabsf(x[j]) < INFINITY) most = fmaxf(most, fabsf(x[j]));
    const HalfRange range(fmaxf(most, __shfl_xor_sync(~0u, most, 1)));
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      uint4 chunk;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        (&chunk.x)[j] = pack<__half>(x[c * 8 + 2 * j] * range.factor, x[c * 8 + 2 * j + 1] * range.factor);
      const int column = half * (kDim / 16) + c;
      *reinterpret_cast<uint4*>(queries + column / 8 * PromptLayout<kDim>::kRowsPart +
                                swizzled(row, column % 8)) = chunk;
    }
    if (half == 0) units[row] = kBits == 4 ? range.inverse / sqrtf(kDim) : range.inverse;
  }

 private:
  __device__ static void read_half(const AttentionArgs& a, int2 place, int half, float (&x)[kDim / 2]) {
    const std::byte* from =
        a.q + place.x * a.q_stride_bytes + (int64_t{place.y} * kDim + half * (kDim / 2)) * 2;
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      const uint4 chunk = place.x >= 0 ? reinterpret_cast<const uint4*>(from)[c] : uint4{};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 pair = unpack<T>((&chunk.x)[j]);
        x[c * 8 + 2 * j] = pair.x, x[c * 8 + 2 * j + 1] = pair.y;
      }
    }
  }
};

/// The warpgroup that makes tiles of codes. A thread has one chunk of 16 bytes of some rows, of keys and of
/// values, and scale and min of one row.
template <typename T, int kDim, int kBits>
class PromptCodes<T, kDim, kBits>::Reader {
  using Memory = PromptMemory<PromptCodes>;
  using Layout = typename Memory::Layout;
  static_assert(kGroupThreads == 2 * kTileKeys);

 public:
  __device__ Reader(const PromptCodes&, const AttentionArgs& a, const AttentionTile& tile, const Keys& keys,
                    int kv_head, Memory& memory)
      : a_(a),
        tile_(tile),
        keys_(keys),
        kv_head_(kv_head),
        to_values_(Format::to_values(a, kv_head)),
        memory_(memory),
        own_(thread() % kGroupThreads),
        chunk_(own_ % kChunks),
        row_(own_ / kChunks) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int column = i / 2 * (kDim / 16) + 2 * chunk_ + i % 2;
      offsets_[i] = column / 8 * Layout::kKeysPart + swizzled(row_, column % 8);
    }
  }

  __device__ void run() {
    wait_for_previous_kernel();
    const int first = keys_.first_tile(), end = keys_.end_tile();
    for (int i = 0; i < kAhead; ++i) start(first + i, i);
    for (int t = first, use = 0; t < end; ++t, ++use) {
      wait_for_copies<kAhead - 1>();
      asm volatile("barrier.sync %0, %1;" ::"n"(kPromptGroups + 2), "n"(kGroupThreads) : "memory");
      memory_.ring.wait_for_place(use);
      make_tile(use, memory_.tiles[memory_.ring.stage(use)]);
      show_to_products();
      __syncwarp();
      if (lane() == 0) memory_.ring.full(use).arrive();
      start(t + kAhead, use + kAhead);
    }
  }

 private:
  /// Pieces of eight columns that a chunk becomes.
  static constexpr int kPieces = 16 / kBits;

  __device__ void start(int t, int use) {
    if (t < keys_.end_tile()) start_tile(t * kTileKeys, use);
    commit_copies();
  }
  __device__ void start_tile(int first_key, int use) {
    auto& codes = memory_.source.codes[use % kAhead];
    // Where blocks are whole tiles, one look at the table tells all places.
    const int64_t first = a_.block_len % kTileKeys == 0 ? find(first_key) : Keys::kOutside;
    const auto find_key = [&](int in_tile) {
      return first < 0 ? find(first_key + in_tile) : first + (int64_t{in_tile} << Format::kRowBits);
    };
    const auto plane_of = [&](int64_t place) { return a_.cache + Format::plane_of(place); };
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int64_t place = find_key(row_ + i * kRowsAtOnce);
      const bool exists = place >= 0;
      const std::byte* from =
          exists ? plane_of(place) + a_.codes.codes(Format::row_of(place)) + chunk_ * 16 : a_.cache;
      copy_async(&codes[0][i][own_], from, exists ? 16 : 0);
      copy_async(&codes[1][i][own_], exists ? from + to_values_ : from, exists ? 16 : 0);
    }
    const int in_tile = own_ % kTileKeys, key = first_key + in_tile;
    const bool is_key = own_ < kTileKeys;
    const int64_t place = key < keys_.first || key >= keys_.end ? Keys::kOutside : find_key(in_tile);
    const std::byte* from = reinterpret_cast<const std::byte*>(&kNaNs);
    if (place >= 0)
      from = plane_of(place) + (is_key ? 0 : to_values_) + a_.codes.params(Format::row_of(place), is_key);
    uint2* to = &memory_.source.params[use % (kAhead + 1)][is_key ? 0 : 1][in_tile];
    if (is_key)
      copy_few_async<kKeyParts * 4>(to, from, place != Keys::kOutside);
    else
      copy_few_async<4>(to, from, place != Keys::kOutside);
  }
  __device__ int64_t find(int key) const { return keys_.template find<Format>(a_, tile_, kv_head_, key); }

  __device__ void make_tile(int use, std::byte* tile) {
    const auto& m = memory_.source;
#pragma unroll
    for (int matrix = 0; matrix < 2; ++matrix)
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const uint4 codes = m.codes[use % kAhead][matrix][i][own_];
        const uint2 params = m.params[use % (kAhead + 1)][matrix][row_ + i * kRowsAtOnce];
        std::byte* to = tile + matrix * Layout::kMatrix + i * kRowsAtOnce * kSwizzledRow;
        if constexpr (kBits == 8) {
          store_piece(to + offsets_[0], params.x, bytes(codes.x), bytes(codes.y));
          store_piece(to + offsets_[1], params.x, bytes(codes.z), bytes(codes.w));
        } else {
          const uint32_t high = matrix == 0 ? params.y : params.x;
          store_piece(to + offsets_[0], params.x, nibbles<false>(codes.x), nibbles<false>(codes.y));
          store_piece(to + offsets_[1], params.x, nibbles<false>(codes.z), nibbles<false>(codes.w));
          store_piece(to + offsets_[2], high, nibbles<true>(codes.x), nibbles<true>(codes.y));
          store_piece(to + offsets_[3], high, nibbles<true>(codes.z), nibbles<true>(codes.w));
        }
      }
  }
  /// Four numbers of a word's bytes, in order.
  __device__ static uint2 bytes(uint32_t word) { return {bytes_of(word, 0, 1), bytes_of(word, 2, 3)}; }
  template <bool kHigh>
  __device__ static uint2 nibbles(uint32_t word) {
    const uint32_t even = nibbles_of<kHigh>(word), odd = nibbles_of<kHigh>(word >> 8);
    return {__byte_perm(even, odd, 0x5410), __byte_perm(even, odd, 0x7632)};
  }
  /// scale * code + min of eight codes.
  __device__ static void store_piece(std::byte* to, uint32_t params, uint2 first, uint2 second) {
    const auto number = [&](uint32_t codes) {
      const __half2 p = *reinterpret_cast<const __half2*>(&params);
      const __half2 number =
          __hfma2(*reinterpret_cast<const __half2*>(&codes), __low2half2(p), __high2half2(p));
      return *reinterpret_cast<const uint32_t*>(&number);
    };
    *reinterpret_cast<uint4*>(to) = {number(first.x), number(first.y), number(second.x), number(second.y)};
  }

  const AttentionArgs& a_;
  const AttentionTile& tile_;
  const Keys& keys_;
  const int kv_head_;
  const int64_t to_values_;  // from a key's codes to its value's
  Memory& memory_;
  const int own_, chunk_, row_;
  int offsets_[kPieces];  // of the first row's
};

}  // namespace

template <typename Format>
void run_prompt_attention(const AttentionArgs& args, int64_t tokens, int least_rows, cudaStream_t stream) {
  launch_prompt_attention(args, PromptCodes<typename Format::T, Format::kDim, Format::kBits>(), tokens,
                          least_rows, stream);
}

}  // namespace lmdeploy::cuda
