#include "lmdeploy/core/tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/float8.h"
#include "lmdeploy/core/half.h"

namespace lmdeploy {
namespace {

// f64 to f16/bf16 in one rounding: via f32 would round twice. Rounding the f32 step to odd keeps it exact.
float to_float_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if ((bits & 0x7f800000u) == 0x7f800000u) return nearest;  // overflowed
  const bool away = (nearest > value) == (value > 0);
  const uint32_t truncated = away ? bits - 1 : bits;
  return std::bit_cast<float>(truncated | 1u);
}

template <typename T>
T load_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof(T));
  return value;
}

template <typename T>
void store_as(std::byte* p, T value) {
  std::memcpy(p, &value, sizeof(T));
}

double load_element(DType dtype, const std::byte* row, int64_t col) {
  const std::byte* p = row + col * block_bytes(dtype);
  switch (dtype) {
    case DType::kF64:
      return load_as<double>(p);
    case DType::kF32:
      return load_as<float>(p);
    case DType::kF16:
      return to_float(load_as<F16>(p));
    case DType::kBF16:
      return to_float(load_as<BF16>(p));
    case DType::kI64:
      return static_cast<double>(load_as<int64_t>(p));
    case DType::kI32:
      return load_as<int32_t>(p);
    case DType::kI16:
      return load_as<int16_t>(p);
    case DType::kI8:
      return load_as<int8_t>(p);
    case DType::kU8:
    case DType::kBool:
      return load_as<uint8_t>(p);
    case DType::kF8E4M3:
      return to_float(load_as<F8E4M3>(p));
    case DType::kF8E5M2:
      return to_float(load_as<F8E5M2>(p));
    default:
      break;
  }
  LMD_CHECK(false, "element of ", to_string(dtype));
}

void store_element(DType dtype, std::byte* row, int64_t col, double value) {
  std::byte* p = row + col * block_bytes(dtype);
  switch (dtype) {
    case DType::kF64:
      return store_as(p, value);
    case DType::kF32:
      return store_as(p, static_cast<float>(value));
    case DType::kF16:
      return store_as(p, to_f16(to_float_odd(value)));
    case DType::kBF16:
      return store_as(p, to_bf16(to_float_odd(value)));
    case DType::kI64:
      return store_as(p, static_cast<int64_t>(value));
    case DType::kI32:
      return store_as(p, static_cast<int32_t>(value));
    case DType::kI16:
      return store_as(p, static_cast<int16_t>(value));
    case DType::kI8:
      return store_as(p, static_cast<int8_t>(value));
    case DType::kU8:
    case DType::kBool:
      return store_as(p, static_cast<uint8_t>(value));
    default:
      break;
  }
  LMD_CHECK(false, "element of ", to_string(dtype));
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  LMD_CHECK(dims.size() <= kMaxRank, dims.size());
  for (size_t i = 0; i < dims.size(); ++i) dims_[i] = dims[i];
}

int64_t Shape::numel() const {
  int64_t product = 1;
  for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
  return product;
}

std::string to_string(const Shape& shape) {
  std::string out = "[";
  for (int i = 0; i < shape.rank(); ++i) out += cat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

template <typename Byte>
double BasicTensorView<Byte>::at(int64_t row, int64_t col) const {
  return load_element(dtype_, row_data(row), col);
}

template <typename Byte>
void BasicTensorView<Byte>::set(int64_t row, int64_t col, double value) const
    requires(!std::is_const_v<Byte>) {
  store_element(dtype_, row_data(row), col, value);
}

template <typename Byte>
BasicTensorView<Byte> BasicTensorView<Byte>::slice_rows(int64_t begin, int64_t count) const {
  LMD_CHECK(rank() <= 2 && begin >= 0 && count >= 0 && begin + count <= rows(), begin, "+", count, " of ",
            to_string(shape_));
  return {row_data(begin), dtype_, {count, cols()}, row_stride_bytes_};
}

template <typename Byte>
BasicTensorView<Byte> BasicTensorView<Byte>::slice_cols(int64_t begin, int64_t count) const {
  LMD_CHECK(rank() <= 2 && begin >= 0 && count >= 0 && begin + count <= cols(), begin, "+", count, " of ",
            to_string(shape_));
  return {data_ + row_bytes(dtype_, begin), dtype_, {rows(), count}, row_stride_bytes_};
}

template class BasicTensorView<std::byte>;
template class BasicTensorView<const std::byte>;

Tensor::Tensor(DType dtype, const Shape& shape, Allocator& allocator)
    : buffer_(static_cast<size_t>(shape.rank() == 0
                                      ? block_bytes(dtype)
                                      : shape.numel() / std::max<int64_t>(1, shape[shape.rank() - 1]) *
                                            row_bytes(dtype, shape[shape.rank() - 1])),
              allocator),
      shape_(shape),
      dtype_(dtype) {}

}  // namespace lmdeploy
