// A warp's tile of a weight of 4 or 8 bits (integer_weight.h), multiplied with tokens on tensor cores.
//
// The integers, less their zero, or the values of codes become 16-bit numbers in registers, exactly. A
// group's products are summed by themselves and its scale is applied to the sum, in f32; a min is multiplied
// with the sum of x, which a row of ones gives. A lane takes the eight consecutive columns that it has of a
// row as those that two products want: a sum does not mind the order of its terms.
#pragma once

#include "lmdeploy/kernels/cuda/few_tokens_results.cuh"
#include "lmdeploy/kernels/cuda/integer_weight.cuh"
#include "lmdeploy/kernels/cuda/wgmma.cuh"

namespace lmdeploy::cuda {
namespace {

template <typename T>
__device__ uint32_t subtract(uint32_t a, uint32_t b) {
  using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;
  const Pair result = __hsub2(*reinterpret_cast<const Pair*>(&a), *reinterpret_cast<const Pair*>(&b));
  return *reinterpret_cast<const uint32_t*>(&result);
}

/// (a & mask) | bits, which the compiler makes two instructions of where both are constants.
__device__ inline uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  uint32_t result;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(mask), "r"(bits));
  return result;
}

/// Numbers that 16-bit integers become when their bits are or'ed in: 128 (bf16) or 1024 (f16).
template <typename T>
constexpr uint32_t kBase = std::is_same_v<T, __half> ? 0x6400 : 0x4300;

constexpr uint32_t k2To23 = 0x4b000000;  // the same for f32

/// What is taken off the integers of a group.
template <typename T, int kBits>
struct Zero {
  static constexpr bool kByF32 = kBits == 8 && !std::is_same_v<T, __half>;  // bf16 has no bits to spare
  uint32_t value;

  __device__ explicit Zero(uint32_t zero) : value(kByF32 ? k2To23 + zero : (kBase<T> + zero) * 0x10001) {}
};

/// Columns 2 p and 2 p + 1 of the eight whose integers are in `words`.
template <typename T>
__device__ uint32_t integer_pair(const uint32_t* words, int p, Zero<T, 4> zero) {
  return subtract<T>(and_or(words[0] >> 4 * p, 0x000f000f, kBase<T> * 0x10001), zero.value);
}
template <typename T>
__device__ uint32_t integer_pair(const uint32_t* words, int p, Zero<T, 8> zero) {
  const uint32_t word = words[p / 2];
  const int first = p % 2 * 2;
  if constexpr (Zero<T, 8>::kByF32) {
    const auto number = [&](int byte) {
      return __uint_as_float(__byte_perm(word, k2To23, 0x7440 + byte)) - __uint_as_float(zero.value);
    };
    return pack<T>(number(first), number(first + 1));
  } else {
    return subtract<T>(__byte_perm(word, kBase<T> >> 8, 0x4040 + first + (first + 1) * 0x100), zero.value);
  }
}

/// The same of codes of e4m3. In the upper bytes of 16-bit numbers, moved to the mantissa's end, they are the
/// value but for the exponent's bias.
template <typename T>
__device__ uint32_t e4m3_pair(const uint32_t* words, int p) {
  constexpr bool kHalf = std::is_same_v<T, __half>;
  using Pair = std::conditional_t<kHalf, __half2, __nv_bfloat162>;
  const int first = p % 2 * 2;
  const uint32_t codes = __byte_perm(words[p / 2], 0, 0x0404 + first * 0x1010 + 0x1000);
  const uint32_t bits = and_or(codes >> (kHalf ? 1 : 4), kHalf ? 0x3f803f80 : 0x07f007f0, codes & 0x80008000);
  const uint32_t bias = kHalf ? 0x5c005c00 : 0x7b807b80;  // 2^8, 2^120
  const Pair result = __hmul2(*reinterpret_cast<const Pair*>(&bits), *reinterpret_cast<const Pair*>(&bias));
  return *reinterpret_cast<const uint32_t*>(&result);
}

/// A warp's unit of a tile, in registers.
template <typename T, typename W>
class IntegerUnit {
  static constexpr bool kMins = W::kScale == GroupScale::kScaleMin;

 public:
  /// From memory that nobody writes.
  __device__ void load(const std::byte* unit) {
#pragma unroll
    for (int i = 0; i < W::kLoads; ++i) codes_[i] = load_weights(unit + i * 512 + lane() * 16);
    load_scales(unit);
  }
  __device__ void load_shared(uint32_t unit) {
#pragma unroll
    for (int i = 0; i < W::kLoads; ++i)
      codes_[i] = cuda::load_shared(unit + static_cast<uint32_t>(i * 512 + lane() * 16));
    uint32_t words[sizeof(scales_) / 4];
    const uint32_t scales =
        unit + static_cast<uint32_t>(W::kUnitCodes + lane() / 4 * static_cast<int>(sizeof(scales_)));
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(scales_)) / 4; ++i)
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(words[i]) : "r"(scales + i * 4));
    memcpy(&scales_, words, sizeof(scales_));
  }

  /// sums += the unit * x, of which `columns` are there. x(t, k): of lane l, columns k + l % 4 * 8 and the
  /// seven after it of token t * 8 + l / 4; k is a multiple of 32.
  template <int kTokenTiles, typename X>
  __device__ void multiply(float (&sums)[kTokenTiles][4], int columns, const X& x) const {
    constexpr int kChains = kTokenTiles == 1 ? 2 : 1;  // of products, one waiting for the other
#pragma unroll
    for (int g = 0; g < W::kGroups; ++g) {
      if (g > 0 && g * W::kGroup >= columns) break;
      float products[kChains][kTokenTiles][4] = {}, x_sums[kTokenTiles][4] = {};
#pragma unroll
      for (int s = 0; s < W::kGroup / 32; ++s) multiply_step(g, s, x, products, x_sums);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const ScaleAnd group = decode_scale<W>(scale_at(g, half));
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float product = products[0][t][i];
            if constexpr (kChains == 2) product += products[1][t][i];
            sums[t][i] = fmaf(product, group.scale, sums[t][i]);
            if constexpr (kMins) sums[t][i] = fmaf(x_sums[t][i], group.other, sums[t][i]);
          }
      }
    }
  }

  /// The same by a warpgroup, whose warps have units of the same columns. x: the unit's columns of tokens in
  /// the order of order_step(), from 64 columns to the next `next_columns` bytes. Without mins.
  template <int kTokenTiles>
  __device__ void multiply_together(float (&sums)[kTokenTiles][4], int columns, SwizzledMatrix x,
                                    int next_columns) const {
    static_assert(!kMins);
#pragma unroll
    for (int g = 0; g < W::kGroups; ++g) {
      if (g > 0 && g * W::kGroup >= columns) break;
      float products[kTokenTiles][4];
      constexpr int kSteps = W::kGroup / 16, kAtOnce = kSteps < 4 ? kSteps : 4;  // in registers
#pragma unroll
      for (int first = 0; first < kSteps; first += kAtOnce) {
        uint32_t weights[kAtOnce][4];
        hold(products);
        begin_products();
#pragma unroll
        for (int s = 0; s < kAtOnce; ++s) {
          if (s % 2 == 0) widen(g, (first + s) / 2, weights[s], weights[s + 1]);
          const int step = g * kSteps + first + s;
          multiply_group<T, 0>(products, weights[s], x + (step / 4 * next_columns + step % 4 * 32),
                               first + s > 0);
        }
        commit_products();
        wait_for_products<0>();
        hold(products);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float scale = decode_scale<W>(scale_at(g, half)).scale;
#pragma unroll
        for (int t = 0; t < kTokenTiles; ++t)
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) sums[t][i] = fmaf(products[t][i], scale, sums[t][i]);
      }
    }
  }

 private:
  __device__ void load_scales(const std::byte* unit) {
    scales_ = reinterpret_cast<const typename W::Scales*>(unit + W::kUnitCodes)[lane() / 4];
  }

  // 32 columns.
  template <int kChains, int kTokenTiles, typename X>
  __device__ void multiply_step(int g, int s, const X& x, float (&products)[kChains][kTokenTiles][4],
                                float (&x_sums)[kTokenTiles][4]) const {
    uint32_t front[4], back[4];
    widen(g, s, front, back);
    const uint32_t one = pack<T>(1, 1), ones[4] = {one, one, one, one};
#pragma unroll
    for (int t = 0; t < kTokenTiles; ++t) {
      const uint4 columns = x(t, g * W::kGroup + s * 32);
      mma<T>(products[0][t], front, columns.x, columns.y);
      mma<T>(products[kChains - 1][t], back, columns.z, columns.w);
      if constexpr (kMins) {
        mma<T>(x_sums[t], ones, columns.x, columns.y);
        mma<T>(x_sums[t], ones, columns.z, columns.w);
      }
    }
  }

  // The step's weights as the left factors of two products.
  __device__ void widen(int g, int s, uint32_t (&front)[4], uint32_t (&back)[4]) const {
    const auto* words = reinterpret_cast<const uint32_t*>(codes_);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t* own = words + ((g * W::kGroup / 32 + s) * 2 + half) * W::kWords;
      if constexpr (W::kScale == GroupScale::kE4M3) {
        front[half] = e4m3_pair<T>(own, 0);
        front[2 + half] = e4m3_pair<T>(own, 1);
        back[half] = e4m3_pair<T>(own, 2);
        back[2 + half] = e4m3_pair<T>(own, 3);
        continue;
      }
      const Zero<T, W::kBits> zero(zero_of<W>(scale_at(g, half)));
      front[half] = integer_pair<T>(own, 0, zero);
      front[2 + half] = integer_pair<T>(own, 1, zero);
      back[half] = integer_pair<T>(own, 2, zero);
      back[2 + half] = integer_pair<T>(own, 3, zero);
    }
  }
  // `half`: of the lane's two rows.
  __device__ const void* scale_at(int g, int half) const {
    return scales_.values + (g * 2 + half) * W::kScaleBytes / 2;
  }

  uint4 codes_[W::kLoads];
  typename W::Scales scales_;
};

/// kDepth units of a tile are on their way from memory at once. All lanes of the warp do the same.
template <typename T, typename W, int kDepth>
class IntegerTile {
 public:
  /// Unit `first` of the tile that begins at `tile`, then each `step` further on, up to `end`.
  __device__ IntegerTile(const std::byte* tile, int first, int step, int end)
      : next_(first), step_(step), end_(end), unit_(tile + int64_t{first} * W::kUnitBytes) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) load_next(d);
  }

  /// To place d % kDepth, of which the unit has been multiplied.
  __device__ void load_next(int d) {
    if (next_ >= end_) return;
    ring_[d].load(unit_);
    unit_ += int64_t{step_} * W::kUnitBytes;
    next_ += step_;
  }
  __device__ const IntegerUnit<T, W>& operator[](int d) const { return ring_[d]; }

 private:
  int next_;  // unit that is loaded next
  const int step_, end_;
  const std::byte* unit_;
  IntegerUnit<T, W> ring_[kDepth];
};

}  // namespace
}  // namespace lmdeploy::cuda
