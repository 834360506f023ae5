// Vectors of the instruction set that a translation unit is compiled for. Only for cpu/isa/: everything here
// has internal linkage and is inlined, so that nothing compiled for one instruction set is ever linked into
// another. LMDEPLOY_ISA names the namespace (portable, avx2, avx2vnni, avx512, avx512vnni),
// LMDEPLOY_ISA_LEVEL is 0, 1, 1, 2 or 2, LMDEPLOY_VNNI is 1 where bytes are multiplied by one instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#if LMDEPLOY_ISA_LEVEL > 0
#include <immintrin.h>
#endif

#define LMD_INLINE inline __attribute__((always_inline))

namespace lmdeploy::cpu::LMDEPLOY_ISA {
namespace {

#if LMDEPLOY_ISA_LEVEL == 2
constexpr int kLanes = 16;
#elif LMDEPLOY_ISA_LEVEL == 1
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif

// The compiler's own vectors: arithmetic, comparison and shifts are operators.
typedef float VecF __attribute__((vector_size(4 * kLanes)));
typedef int32_t VecI __attribute__((vector_size(4 * kLanes)));
typedef uint32_t VecU __attribute__((vector_size(4 * kLanes)));
typedef uint16_t VecU16 __attribute__((vector_size(2 * kLanes)));
typedef int16_t VecI16 __attribute__((vector_size(2 * kLanes)));
typedef uint8_t VecU8 __attribute__((vector_size(kLanes)));
typedef int8_t VecI8 __attribute__((vector_size(kLanes)));

template <typename V, typename T>
LMD_INLINE V load_as(const T* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}
template <typename V, typename T>
LMD_INLINE void store_as(T* p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}
template <typename V, typename T>
LMD_INLINE V bit_cast_to(T value) {
  static_assert(sizeof(V) == sizeof(T));
  V v;
  __builtin_memcpy(&v, &value, sizeof(V));
  return v;
}

LMD_INLINE VecF splat(float x) { return x - VecF{}; }  // x - 0 is x, -0 and NaN included
LMD_INLINE VecF load(const float* p) { return load_as<VecF>(p); }
/// Lanes from `n` on are 0 and not read.
LMD_INLINE VecF load(const float* p, int64_t n) {
  if (n >= kLanes) return load(p);
  VecF v{};
  for (int i = 0; i < n; ++i) v[i] = p[i];
  return v;
}
LMD_INLINE void store(float* p, VecF v) { store_as(p, v); }
LMD_INLINE void store(float* p, VecF v, int64_t n) {
  if (n >= kLanes) return store(p, v);
  for (int i = 0; i < n; ++i) p[i] = v[i];
}

/// a * b + c; rounded once where the instruction set can.
LMD_INLINE VecF fma(VecF a, VecF b, VecF c) {
#if LMDEPLOY_ISA_LEVEL == 2
  return _mm512_fmadd_ps(a, b, c);
#elif LMDEPLOY_ISA_LEVEL == 1
  return _mm256_fmadd_ps(a, b, c);
#else
  return a * b + c;
#endif
}

LMD_INLINE VecI lane_index() {
  VecI v;
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}
/// The larger or smaller of a and b; b where either is NaN.
LMD_INLINE VecF larger(VecF a, VecF b) {
#if LMDEPLOY_ISA_LEVEL == 2
  return _mm512_maskz_max_ps(0xffff, a, b);  // unmasked, GCC 12 warns falsely (PR 105593)
#elif LMDEPLOY_ISA_LEVEL == 1
  return _mm256_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
LMD_INLINE VecI larger(VecI a, VecI b) { return a > b ? a : b; }
LMD_INLINE VecF smaller(VecF a, VecF b) {
#if LMDEPLOY_ISA_LEVEL == 2
  return _mm512_maskz_min_ps(0xffff, a, b);
#elif LMDEPLOY_ISA_LEVEL == 1
  return _mm256_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

/// Lane i of the result is lane i ^ kDistance.
template <int kDistance, typename V>
LMD_INLINE V swap_lanes(V v) {
  return __builtin_shuffle(v, lane_index() ^ kDistance);
}
/// The upper half folded onto the lower until one lane is left: a fixed order.
template <typename V>
LMD_INLINE auto reduce_add(V v) {
  if constexpr (kLanes > 8) v += swap_lanes<8 % kLanes>(v);
  if constexpr (kLanes > 4) v += swap_lanes<4 % kLanes>(v);
  v += swap_lanes<2>(v);
  v += swap_lanes<1>(v);
  return v[0];
}
template <typename V>
LMD_INLINE auto reduce_max(V v) {
  if constexpr (kLanes > 8) v = larger(swap_lanes<8 % kLanes>(v), v);
  if constexpr (kLanes > 4) v = larger(swap_lanes<4 % kLanes>(v), v);
  v = larger(swap_lanes<2>(v), v);
  v = larger(swap_lanes<1>(v), v);
  return v[0];
}

// Widening by __builtin_convertvector costs GCC 12 four instructions where one does; the masked forms are for
// its false warning about the unmasked ones (PR 105593).
#if LMDEPLOY_ISA_LEVEL == 2
LMD_INLINE VecI widen(VecU16 v) { return (VecI)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)v); }
LMD_INLINE VecI widen(VecI16 v) { return (VecI)_mm512_maskz_cvtepi16_epi32(0xffff, (__m256i)v); }
LMD_INLINE VecI widen(VecU8 v) { return (VecI)_mm512_maskz_cvtepu8_epi32(0xffff, (__m128i)v); }
LMD_INLINE VecI widen(VecI8 v) { return (VecI)_mm512_maskz_cvtepi8_epi32(0xffff, (__m128i)v); }
#elif LMDEPLOY_ISA_LEVEL == 1
LMD_INLINE VecI widen(VecU16 v) { return (VecI)_mm256_cvtepu16_epi32((__m128i)v); }
LMD_INLINE VecI widen(VecI16 v) { return (VecI)_mm256_cvtepi16_epi32((__m128i)v); }
LMD_INLINE VecI widen(VecU8 v) { return (VecI)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)v)); }
LMD_INLINE VecI widen(VecI8 v) { return (VecI)_mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)v)); }
#else
template <typename V>
LMD_INLINE VecI widen(V v) {
  return __builtin_convertvector(v, VecI);
}
#endif

LMD_INLINE VecF to_f32(VecI v) { return __builtin_convertvector(v, VecF); }
/// The nearest integer, ties to even, of values below 2^22.
LMD_INLINE VecI round_to_int(VecF v) { return bit_cast_to<VecI>(v + 0x1.8p23f) - 0x4b400000; }
LMD_INLINE VecF bf16_to_f32(VecU16 v) { return bit_cast_to<VecF>(widen(v) << 16); }

LMD_INLINE VecF f16_to_f32(VecU16 v) {
#if LMDEPLOY_ISA_LEVEL == 2
  return _mm512_maskz_cvtph_ps(0xffff, bit_cast_to<__m256i>(v));
#elif LMDEPLOY_ISA_LEVEL == 1
  return _mm256_cvtph_ps(bit_cast_to<__m128i>(v));
#else
  const VecU h = bit_cast_to<VecU>(widen(v));
  const VecU sign = (h & 0x8000u) << 16;
  // Moving the exponent by a multiplication makes subnormals right; infinity and NaN get theirs by hand.
  VecU bits = bit_cast_to<VecU>(bit_cast_to<VecF>((h & 0x7fffu) << 13) * 0x1p112f);
  bits |= bit_cast_to<VecU>((h & 0x7c00u) == 0x7c00u) & 0x7f800000u;
  return bit_cast_to<VecF>(bits | sign);
#endif
}

/// The upper bytes, codes of e4m3, times 2^-8: exponents of f16 are biased by 8 more. NaN is not known.
LMD_INLINE VecF e4m3_to_f32(VecU16 v) {
  return f16_to_f32(bit_cast_to<VecU16>(bit_cast_to<VecI16>(v) >> 1) & static_cast<uint16_t>(0xbf80));
}

LMD_INLINE VecU16 f32_to_bf16(VecF v) {
  const VecU bits = bit_cast_to<VecU>(v);
  const VecU is_nan = bit_cast_to<VecU>((bits & 0x7fffffffu) > 0x7f800000u);
  const VecU rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const VecU quiet = (bits >> 16) | 0x40u;
  return __builtin_convertvector((is_nan & quiet) | (~is_nan & rounded), VecU16);
}

LMD_INLINE VecU16 f32_to_f16(VecF v) {
#if LMDEPLOY_ISA_LEVEL == 2
  return bit_cast_to<VecU16>(_mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
#elif LMDEPLOY_ISA_LEVEL == 1
  return bit_cast_to<VecU16>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  const VecU bits = bit_cast_to<VecU>(v);
  const VecU magnitude = bits & 0x7fffffffu;
  const VecU normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  // Below 2^-14 the result is subnormal: adding 0.5 lets the FPU round at 2^-24.
  const VecU tiny = bit_cast_to<VecU>(bit_cast_to<VecF>(magnitude) + 0.5f) - 0x3f000000u;
  const VecU is_tiny = bit_cast_to<VecU>(magnitude < 0x38800000u);
  const VecU is_big = bit_cast_to<VecU>(magnitude >= 0x477ff000u);
  const VecU is_nan = bit_cast_to<VecU>(magnitude > 0x7f800000u);
  const VecU big = 0x7c00u | (is_nan & 0x200u);
  const VecU half = (is_tiny & tiny) | (is_big & big) | (~(is_tiny | is_big) & normal);
  return __builtin_convertvector(half | ((bits >> 16) & 0x8000u), VecU16);
#endif
}

LMD_INLINE VecF power_of_2(VecI n) { return bit_cast_to<VecF>((n + 127) << 23); }

/// e^x = 2^n (1 + r p) with |r| <= ln 2 / 2.
struct SplitExp {
  VecF n;
  VecI whole_n;
  VecF r;
  VecF p;
};
LMD_INLINE SplitExp split_exp(VecF x) {
  // Adding 1.5 * 2^23 rounds n to an integer.
  const VecF shifted = fma(x, splat(0x1.715476p+0f), splat(0x1.8p23f));
  const VecF n = shifted - 0x1.8p23f;
  VecF r = fma(n, splat(-0x1.62e4p-1f), x);  // ln 2 in two parts: the first times n is exact
  r = fma(n, splat(-0x1.7f7d1cp-20f), r);
  VecF p = splat(1.0f / 5040);  // Taylor's series; the next term is below 2^-27
  p = fma(p, r, splat(1.0f / 720));
  p = fma(p, r, splat(1.0f / 120));
  p = fma(p, r, splat(1.0f / 24));
  p = fma(p, r, splat(1.0f / 6));
  p = fma(p, r, splat(0.5f));
  p = fma(p, r, splat(1.0f));
  return {n, bit_cast_to<VecI>(shifted) - 0x4b400000, r, p};
}

/// e^x within 2 units in the last place; 0 below `least` (so -inf gives 0), inf above 88.73, NaN stays NaN.
/// Below -86 results would be subnormal, which takes processors of Intel 25 times as long.
LMD_INLINE VecF exp(VecF x, float least = -86) {
#if LMDEPLOY_ISA_LEVEL == 2
  const SplitExp e = split_exp(smaller(splat(89.0f), x));  // a NaN passes
  const __mmask16 is_normal = _mm512_cmp_ps_mask(x, splat(least), _CMP_NLT_UQ);
  return _mm512_maskz_scalef_ps(is_normal, fma(e.p, e.r, splat(1.0f)), e.n);
#else
  const SplitExp e = split_exp(smaller(splat(89.0f), larger(splat(least), x)));  // a NaN passes
  // Twice half the result: 2^n is infinite if n is 128.
  const VecF half = fma(e.p, e.r, splat(1.0f)) * power_of_2(e.whole_n - 1);
  return x < least ? VecF{} : half + half;
#endif
}

LMD_INLINE VecF absolute(VecF x) { return bit_cast_to<VecF>(bit_cast_to<VecI>(x) & 0x7fffffff); }
LMD_INLINE VecF with_sign_of(VecF x, VecF sign) {
  return bit_cast_to<VecF>(bit_cast_to<VecI>(absolute(x)) | (bit_cast_to<VecI>(sign) & ~0x7fffffff));
}

/// Within 4 units in the last place: |m| / (2 + m) with m = e^(-2|x|) - 1, where no digits cancel.
LMD_INLINE VecF tanh(VecF x) {
  const SplitExp e = split_exp(larger(splat(-40.0f), -2.0f * absolute(x)));  // a NaN passes
  const VecF power = power_of_2(e.whole_n);
  const VecF m = fma(e.p * e.r, power, power - 1.0f);
  return with_sign_of(m / (2.0f + m), x);
}

// ---- sixteen values, one per row of a panel

constexpr int kVecs = 16 / kLanes;

struct Row16 {
  VecF v[kVecs];
};
struct Word16 {
  VecU v[kVecs];
};

LMD_INLINE Row16 load16(const float* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = load(p + i * kLanes);
  return r;
}
LMD_INLINE void store16(float* p, const Row16& r) {
  for (int i = 0; i < kVecs; ++i) store(p + i * kLanes, r.v[i]);
}
LMD_INLINE Word16 load_words(const std::byte* p) {
  Word16 w;
  for (int i = 0; i < kVecs; ++i) w.v[i] = load_as<VecU>(p + i * 4 * kLanes);
  return w;
}
LMD_INLINE Row16 load16_f16(const std::byte* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = f16_to_f32(load_as<VecU16>(p + i * 2 * kLanes));
  return r;
}
LMD_INLINE Row16 load16_bf16(const std::byte* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = bf16_to_f32(load_as<VecU16>(p + i * 2 * kLanes));
  return r;
}
LMD_INLINE Row16 load16_i8(const std::byte* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = to_f32(widen(load_as<VecI8>(p + i * kLanes)));
  return r;
}
LMD_INLINE Row16 load16_i16(const std::byte* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = to_f32(widen(load_as<VecI16>(p + i * 2 * kLanes)));
  return r;
}
LMD_INLINE Row16 load16_u8(const std::byte* p) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = to_f32(widen(load_as<VecU8>(p + i * kLanes)));
  return r;
}
LMD_INLINE Row16 operator*(const Row16& a, const Row16& b) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = a.v[i] * b.v[i];
  return r;
}
LMD_INLINE Row16 operator*(const Row16& a, float b) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = a.v[i] * b;
  return r;
}
LMD_INLINE Row16 operator+(const Row16& a, const Row16& b) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = a.v[i] + b.v[i];
  return r;
}
LMD_INLINE Row16 operator+(const Row16& a, float b) {
  Row16 r;
  for (int i = 0; i < kVecs; ++i) r.v[i] = a.v[i] + b;
  return r;
}
/// sum += a * b
LMD_INLINE void add_product(Row16& sum, const Row16& a, const Row16& b) {
  for (int i = 0; i < kVecs; ++i) sum.v[i] = fma(a.v[i], b.v[i], sum.v[i]);
}
LMD_INLINE void add_product(Row16& sum, const Row16& a, float b) {
  const VecF wide = splat(b);
  for (int i = 0; i < kVecs; ++i) sum.v[i] = fma(a.v[i], wide, sum.v[i]);
}

// ---- transposition of 16 rows of bytes and of a square of floats, for K

// One or two squares of 16 bytes beside each other.
#if LMDEPLOY_ISA_LEVEL > 0
constexpr int kByteColumns = 32;
#else
constexpr int kByteColumns = 16;
#endif
typedef uint8_t Bytes __attribute__((vector_size(kByteColumns)));

/// The lower (kFirst 0) or upper (8) halves of each square's 16 bytes of a and b, byte by byte in turn.
template <int kFirst>
LMD_INLINE Bytes interleave(Bytes a, Bytes b) {
  Bytes order;
  for (int i = 0; i < kByteColumns; ++i)
    order[i] = static_cast<uint8_t>(i / 16 * 16 + kFirst + i % 16 / 2 + i % 2 * kByteColumns);
  return __builtin_shuffle(a, b, order);
}

/// columns[d][j] = byte d of row j, rows `stride` bytes apart.
LMD_INLINE void transpose_bytes(uint8_t (&columns)[kByteColumns][16], const std::byte* rows, int64_t stride) {
  Bytes r[16], z[16];
  for (int j = 0; j < 16; ++j) r[j] = load_as<Bytes>(rows + j * stride);
    // Each round moves a bit of the row's number to the column's.
#pragma GCC unroll 4
  for (int round = 0; round < 4; ++round) {
    for (int j = 0; j < 8; ++j) {
      z[2 * j] = interleave<0>(r[j], r[j + 8]);
      z[2 * j + 1] = interleave<8>(r[j], r[j + 8]);
    }
    for (int j = 0; j < 16; ++j) r[j] = z[j];
  }
  for (int d = 0; d < 16; ++d)
    for (int square = 0; square < kByteColumns; square += 16)
      __builtin_memcpy(columns[square + d], reinterpret_cast<const uint8_t*>(&r[d]) + square, 16);
}

#if LMDEPLOY_ISA_LEVEL > 0
constexpr int kSquare = 8;
typedef float SquareRow __attribute__((vector_size(32)));

/// dst[j * 16 + i] = row(i)[j] for i, j in [0, kSquare)
template <typename Row>
LMD_INLINE void transpose_square(float* dst, const Row& row) {
  __m256 pair[8], quad[8];
  for (int i = 0; i < 8; i += 2) {
    const auto a = (__m256)row(i), b = (__m256)row(i + 1);
    pair[i] = _mm256_unpacklo_ps(a, b);
    pair[i + 1] = _mm256_unpackhi_ps(a, b);
  }
  for (int i = 0; i < 8; i += 4) {
    quad[i] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0x44);
    quad[i + 1] = _mm256_shuffle_ps(pair[i], pair[i + 2], 0xee);
    quad[i + 2] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0x44);
    quad[i + 3] = _mm256_shuffle_ps(pair[i + 1], pair[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    store_as(dst + i * 16, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x20));
    store_as(dst + (i + 4) * 16, _mm256_permute2f128_ps(quad[i], quad[i + 4], 0x31));
  }
}
LMD_INLINE SquareRow square_row_of_f16(const std::byte* p) {
  return (SquareRow)_mm256_cvtph_ps(load_as<__m128i>(p));
}
LMD_INLINE SquareRow square_row_of_bf16(const std::byte* p) {
  return (SquareRow)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_as<__m128i>(p)), 16);
}
#else
constexpr int kSquare = 4;
typedef VecF SquareRow;

/// dst[j * 16 + i] = row(i)[j] for i, j in [0, kSquare)
template <typename Row>
LMD_INLINE void transpose_square(float* dst, const Row& row) {
  const VecF low01 = __builtin_shuffle(row(0), row(1), VecI{0, 4, 1, 5});
  const VecF high01 = __builtin_shuffle(row(0), row(1), VecI{2, 6, 3, 7});
  const VecF low23 = __builtin_shuffle(row(2), row(3), VecI{0, 4, 1, 5});
  const VecF high23 = __builtin_shuffle(row(2), row(3), VecI{2, 6, 3, 7});
  store(dst, __builtin_shuffle(low01, low23, VecI{0, 1, 4, 5}));
  store(dst + 16, __builtin_shuffle(low01, low23, VecI{2, 3, 6, 7}));
  store(dst + 32, __builtin_shuffle(high01, high23, VecI{0, 1, 4, 5}));
  store(dst + 48, __builtin_shuffle(high01, high23, VecI{2, 3, 6, 7}));
}
LMD_INLINE SquareRow square_row_of_f16(const std::byte* p) { return f16_to_f32(load_as<VecU16>(p)); }
LMD_INLINE SquareRow square_row_of_bf16(const std::byte* p) { return bf16_to_f32(load_as<VecU16>(p)); }
#endif

}  // namespace
}  // namespace lmdeploy::cpu::LMDEPLOY_ISA
