// Any float or quantised kind to f32. Where a sum follows, the products are exact (at most 11 bits of d, 7 of
// a scale and 6 of an integer), so that a compiler that fuses them with the sum changes nothing.
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/float8.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/kernels/quant_block.h"

namespace lmdeploy {
namespace {

template <typename T>
T element(const std::byte* src, int64_t i) {
  T value;
  std::memcpy(&value, src + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

void widen(DType dtype, const std::byte* src, float* dst, int64_t count) {
  switch (dtype) {
    case DType::kF64:
      for (int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(element<double>(src, i));
      return;
    case DType::kF32:
      std::memcpy(dst, src, static_cast<size_t>(count) * sizeof(float));
      return;
    case DType::kF16:
      for (int64_t i = 0; i < count; ++i) dst[i] = to_float(element<F16>(src, i));
      return;
    case DType::kBF16:
      for (int64_t i = 0; i < count; ++i) dst[i] = to_float(element<BF16>(src, i));
      return;
    default:
      break;
  }
  throw Error(ErrorCode::kInvalidArgument, cat("dequantize: ", dtype, " is not a float or quantised kind"));
}

void dequantize_codes(const QuantBlock& block, int64_t size, float* dst) {
  for (int64_t i = 0; i < size; ++i)
    dst[i] = block.wide_scale * to_float(F8E4M3{static_cast<uint8_t>(block.q[static_cast<size_t>(i)])});
}

}  // namespace

void dequantize_block(const QuantKind& kind, const QuantBlock& block, int64_t size, float* dst) {
  if (kind.e4m3) return dequantize_codes(block, size, dst);
  for (int64_t i = 0; i < size; i += kind.group) {
    const int group = static_cast<int>(i) / kind.group;
    const float scale = block.scale(kind, group);
    const float min = kind.has_min ? block.min(kind, group) : 0;
    for (int64_t j = i; j < i + kind.group; ++j) {
      const float product = scale * static_cast<float>(block.q[static_cast<size_t>(j)] - block.zero);
      dst[j] = kind.has_min ? product + min : product;  // adding 0 would turn -0 into 0
    }
  }
}

void dequantize(DType dtype, const std::byte* src, float* dst, int64_t count) {
  if (!is_quantized(dtype)) return widen(dtype, src, dst, count);
  const QuantKind& kind = quant_kind(dtype);
  const int64_t size = block_size(dtype);
  if (count % size != 0)
    throw Error(ErrorCode::kInvalidArgument,
                cat("dequantize: ", count, " elements are not whole ", dtype, " blocks of ", size));
  for (int64_t at = 0; at < count; at += size, src += block_bytes(dtype)) {
    dequantize_block(kind, read_quant_block(dtype, src), size, dst + at);
  }
}

}  // namespace lmdeploy
