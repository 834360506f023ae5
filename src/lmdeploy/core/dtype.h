// Element types: plain numbers, the block-quantised kinds of GGUF files, and integers and 8-bit floats in
// groups.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lmdeploy {

/// A quantised kind stores block_size() consecutive elements of a row in block_bytes() bytes; its layouts are
/// those of ggml (ggml-common.h, `block_q4_0` ...), but for integers in groups, what AWQ, GPTQ and their like
/// hold: {f32 scale, i32 zero, integers}, w = scale * (integer - zero) in f32. kU4: nibbles, element 2 i in
/// the low half of byte i; kU5 (values 0 .. 31): a byte each; kI8: signed bytes. kF8G64, of fp8 checkpoints:
/// {f32 scale, e4m3 codes} (core/float8.h), w = scale * value of the code in f32.
enum class DType : uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU8,
  kU4,  // two a byte: for a KV cache (kernels.h), no tensor of a file
  kBool,
  kF8E4M3,
  kF8E5M2,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kU4G32,
  kU4G128,
  kU5G32,
  kI8G64,
  kF8G64,
};

/// Elements in one block: 1 for plain numbers, 2 for u4, 32 to 256 for quantised kinds.
int64_t block_size(DType dtype);
/// Bytes of one block (of one element for plain numbers).
int64_t block_bytes(DType dtype);
/// Bytes of a row of `num_elements`, which must be a multiple of block_size().
int64_t row_bytes(DType dtype, int64_t num_elements);

inline bool is_quantized(DType dtype) { return dtype >= DType::kQ4_0; }
/// Integers in groups: kinds that no GGUF file holds.
constexpr bool is_integer_group(DType dtype) { return dtype >= DType::kU4G32 && dtype <= DType::kI8G64; }
/// The kinds weights are computed in; 8-bit floats are not among them: without their scales they mean
/// nothing.
inline bool is_float(DType dtype) { return dtype <= DType::kBF16; }

/// "f32", "bf16", "q4_1", ...
std::string_view to_string(DType dtype);
/// The reverse of to_string(); nothing for an unknown name.
std::optional<DType> dtype_from_string(std::string_view name);

/// Relative rounding step of a float type (2^-p for p stored significand bits + 1): 2^-53, 2^-24, 2^-11,
/// 2^-8.
double epsilon(DType dtype);

}  // namespace lmdeploy
