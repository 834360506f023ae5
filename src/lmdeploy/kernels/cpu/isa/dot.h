// Products of unsigned or signed weight bytes and signed token bytes in [-127, 127], four columns to a 32-bit
// lane. Exact: a sum of kRunSteps<Panel> steps cannot overflow.
#pragma once

#include "lmdeploy/kernels/cpu/isa/simd.h"

#if LMDEPLOY_ISA_LEVEL == 0
#error "no byte products for the portable instruction set"
#endif

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

#if LMDEPLOY_VNNI
constexpr bool kSignedBytes = false;  // weights are shifted to unsigned ones

template <bool kSigned>
LMD_INLINE VecI add_dot(VecI run, VecI w, VecI x) {
  static_assert(!kSigned);
#if LMDEPLOY_ISA_LEVEL == 2
  return (VecI)_mm512_dpbusd_epi32((__m512i)run, (__m512i)w, (__m512i)x);
#else
  return (VecI)_mm256_dpbusd_avx_epi32((__m256i)run, (__m256i)w, (__m256i)x);
#endif
}

/// run + a * b of the lanes' lower halves, as integers of 16 bits.
LMD_INLINE VecI add_short_product(VecI run, VecI a, int32_t b) {
  const VecI lower = (b & 0xffff) - VecI{};
#if LMDEPLOY_ISA_LEVEL == 2
  return (VecI)_mm512_dpwssd_epi32((__m512i)run, (__m512i)a, (__m512i)lower);
#else
  return (VecI)_mm256_dpwssd_avx_epi32((__m256i)run, (__m256i)a, (__m256i)lower);
#endif
}

/// Whether add_dot adds to sums of 32 bits: there are no runs to finish.
template <bool kSigned>
constexpr bool kRunIsSum = true;

/// Steps of four columns that one run may sum.
template <class Panel>
constexpr int kRunSteps = 8;

#else
constexpr bool kSignedBytes = true;

// Pairs of unsigned bytes times signed ones as 16 bits, with saturation, which kRunSteps excludes.
LMD_INLINE VecI multiply_pairs(VecI w, VecI x) {
#if LMDEPLOY_ISA_LEVEL == 2
  return (VecI)_mm512_maddubs_epi16((__m512i)w, (__m512i)x);
#else
  return (VecI)_mm256_maddubs_epi16((__m256i)w, (__m256i)x);
#endif
}
LMD_INLINE VecI add_pairs(VecI pairs) {
#if LMDEPLOY_ISA_LEVEL == 2
  return (VecI)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(1));
#else
  return (VecI)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(1));
#endif
}
/// Signed weights: |w| times x with the sign of w.
LMD_INLINE VecI multiply_signed_pairs(VecI w, VecI x) {
#if LMDEPLOY_ISA_LEVEL == 2
  const __mmask64 negative = _mm512_movepi8_mask((__m512i)w);
  const __m512i turned = _mm512_mask_sub_epi8((__m512i)x, negative, __m512i{}, (__m512i)x);
  return multiply_pairs((VecI)_mm512_abs_epi8((__m512i)w), (VecI)turned);
#else
  return multiply_pairs((VecI)_mm256_abs_epi8((__m256i)w), (VecI)_mm256_sign_epi8((__m256i)x, (__m256i)w));
#endif
}

/// A run sums in 16 bits, or in 32 where the weights are signed.
template <bool kSigned>
LMD_INLINE VecI add_dot(VecI run, VecI w, VecI x) {
  if constexpr (kSigned) return run + add_pairs(multiply_signed_pairs(w, x));
  typedef int16_t Vec16 __attribute__((vector_size(4 * kLanes)));
  return (VecI)((Vec16)run + (Vec16)multiply_pairs(w, x));
}
LMD_INLINE VecI finish_run(VecI run) { return add_pairs(run); }
template <bool kSigned>
constexpr bool kRunIsSum = kSigned;

template <class Panel>
constexpr int kRunSteps = 32767 / (2 * 127 * Panel::kMaxInteger) < 8 ? 32767 / (2 * 127 * Panel::kMaxInteger)
                                                                     : 8;
#endif

/// Each byte less that of `subtrahend`, modulo 256.
LMD_INLINE VecI subtract_bytes(VecI v, VecI subtrahend) {
  typedef uint8_t Vec8 __attribute__((vector_size(4 * kLanes)));
  return (VecI)((Vec8)v - (Vec8)subtrahend);
}
/// The lowest byte of each lane, four times.
LMD_INLINE VecI repeat_byte(VecI v) {
  const VecI two = (v & 0xff) | v << 8;
  return (two & 0xffff) | two << 16;
}

/// Products are added one by one: GCC 12 otherwise computes several ahead and spills the sums.
LMD_INLINE void keep_order(VecI& sum) {
#if LMDEPLOY_ISA_LEVEL == 2
  __asm__ volatile("" : "+v"(sum));
#else
  __asm__ volatile("" : "+x"(sum));
#endif
}

/// A total that shares no register with sums: what GCC 12 would spill instead are the sums of the inner loop.
LMD_INLINE void keep_in_memory(VecF& total) { __asm__ volatile("" : "+m"(total)); }

LMD_INLINE VecI splat_bytes(const int8_t* four) {
  int32_t word;
  __builtin_memcpy(&word, four, sizeof(word));
  return word - VecI{};
}

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
