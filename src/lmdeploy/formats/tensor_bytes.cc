#include "lmdeploy/formats/tensor_bytes.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "lmdeploy/core/error.h"

namespace lmdeploy {

std::optional<size_t> tensor_bytes(DType dtype, std::span<const int64_t> dims) {
  int64_t numel = 1;  // of the non-zero dimensions
  int64_t bytes = 0;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(numel, dim, &numel)) {
      return std::nullopt;
    }
  }
  const int64_t cols = dims.empty() ? 1 : dims.back();
  if (cols % block_size(dtype) != 0) return std::nullopt;
  // row_bytes() of one row is at most this product.
  if (__builtin_mul_overflow(numel, block_bytes(dtype), &bytes)) return std::nullopt;
  return empty ? 0 : static_cast<size_t>(bytes / block_size(dtype));
}

std::string dims_to_string(std::span<const int64_t> dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += cat(i == 0 ? "" : ", ", dims[i]);
  return out + "]";
}

std::optional<std::pair<StoredRange, StoredRange>> find_overlap(std::vector<StoredRange>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const StoredRange& a, const StoredRange& b) {
    return std::tie(a.begin, a.end, a.index) < std::tie(b.begin, b.end, b.index);
  });
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) return std::pair(ranges[i - 1], ranges[i]);
  }
  return std::nullopt;
}

}  // namespace lmdeploy
