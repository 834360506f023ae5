// Tensors: an owning buffer and non-owning views. Views are passed by value; they never own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "lmdeploy/core/allocator.h"
#include "lmdeploy/core/dtype.h"

namespace lmdeploy {

/// Up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  int64_t numel() const;
  bool operator==(const Shape& other) const = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};
/// "[2, 576]"
std::string to_string(const Shape& shape);

/// A matrix-like view: the last dimension is contiguous; rows (all outer dimensions flattened) are
/// `row_stride_bytes` apart, so a view may be a column slice of a wider buffer.
template <typename Byte>
class BasicTensorView {
 public:
  BasicTensorView() = default;
  /// Contiguous rows.
  BasicTensorView(Byte* data, DType dtype, const Shape& shape)
      : BasicTensorView(data, dtype, shape,
                        shape.rank() == 0 ? 0 : row_bytes(dtype, shape[shape.rank() - 1])) {}
  BasicTensorView(Byte* data, DType dtype, const Shape& shape, int64_t row_stride_bytes)
      : data_(data), row_stride_bytes_(row_stride_bytes), shape_(shape), dtype_(dtype) {}
  /// A mutable view is a const view too.
  template <typename Other>
  requires(std::is_same_v<const Other, Byte>)
      BasicTensorView(const BasicTensorView<Other>& other)  // NOLINT: implicit by intent
      : BasicTensorView(other.data(), other.dtype(), other.shape(), other.row_stride_bytes()) {}

  Byte* data() const { return data_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  int64_t dim(int i) const { return shape_[i]; }
  /// Elements of the last dimension; 1 for a scalar.
  int64_t cols() const { return rank() == 0 ? 1 : shape_[rank() - 1]; }
  /// Product of all dimensions but the last.
  int64_t rows() const { return cols() == 0 ? 0 : shape_.numel() / cols(); }
  int64_t row_stride_bytes() const { return row_stride_bytes_; }
  bool contiguous() const { return rows() <= 1 || row_stride_bytes_ == row_bytes(dtype_, cols()); }

  Byte* row_data(int64_t row) const { return data_ + row * row_stride_bytes_; }
  template <typename T>
  auto* row(int64_t r) const {
    using Element = std::conditional_t<std::is_const_v<Byte>, const T, T>;
    return reinterpret_cast<Element*>(row_data(r));
  }

  /// Element (row, col) as f64; the dtype must not be quantised. For references and tests, not for speed.
  double at(int64_t row, int64_t col) const;
  double at(int64_t col) const { return at(0, col); }
  /// Rounds to the dtype (nearest, ties to even); neither quantised nor an 8-bit float.
  void set(int64_t row, int64_t col, double value) const requires(!std::is_const_v<Byte>);
  void set(int64_t col, double value) const requires(!std::is_const_v<Byte>) { set(0, col, value); }

  /// Rows [begin, begin + count) of a rank-2 (or lower) view.
  BasicTensorView slice_rows(int64_t begin, int64_t count) const;
  /// Columns [begin, begin + count); both must fall on block borders.
  BasicTensorView slice_cols(int64_t begin, int64_t count) const;

 private:
  Byte* data_ = nullptr;
  int64_t row_stride_bytes_ = 0;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

using TensorView = BasicTensorView<std::byte>;
using ConstTensorView = BasicTensorView<const std::byte>;

extern template class BasicTensorView<std::byte>;
extern template class BasicTensorView<const std::byte>;

/// Owns its memory. Moves; does not copy by accident.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised memory from `allocator`, which must outlive the tensor.
  Tensor(DType dtype, const Shape& shape, Allocator& allocator = host_allocator());

  TensorView view() const { return {buffer_.data(), dtype_, shape_}; }
  operator TensorView() const { return view(); }       // NOLINT: implicit by intent
  operator ConstTensorView() const { return view(); }  // NOLINT
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  size_t bytes() const { return buffer_.size(); }
  bool empty() const { return buffer_.data() == nullptr; }
  template <typename T>
  std::span<T> span() const {
    return {reinterpret_cast<T*>(buffer_.data()), buffer_.size() / sizeof(T)};
  }

 private:
  Buffer buffer_;
  Shape shape_;
  DType dtype_ = DType::kF32;
};

}  // namespace lmdeploy
