// Sizes of stored tensors, computed without overflow, and the checks on where they lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// Bytes of a tensor with these dimensions (outermost first). Nothing when a dimension is negative, when the
/// product of the non-zero ones (which Shape::numel() computes along the way) or the size overflows int64, or
/// when the last one is not a multiple of the block size.
std::optional<size_t> tensor_bytes(DType dtype, std::span<const int64_t> dims);

/// "[2, 576]" for any rank.
std::string dims_to_string(std::span<const int64_t> dims);

/// Copies the elements in order. `strides` (in elements, one per dimension) stay inside `stored`, which
/// begins with the first element; `out` has room for all.
void copy_strided(std::span<const std::byte> stored, DType dtype, const Shape& shape,
                  std::span<const int64_t> strides, std::byte* out);

/// Where one tensor lies in the data section of its file.
struct StoredRange {
  size_t begin = 0;
  size_t end = 0;    // one past the last byte
  size_t index = 0;  // the caller's number of the tensor
};

/// Sorts by position. Returns the first neighbours that share a byte, or nothing.
std::optional<std::pair<StoredRange, StoredRange>> find_overlap(std::vector<StoredRange>& ranges);

}  // namespace lmdeploy
