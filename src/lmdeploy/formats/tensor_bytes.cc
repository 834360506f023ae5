#include "lmdeploy/formats/tensor_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>
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

void copy_strided(std::span<const std::byte> stored, DType dtype, const Shape& shape,
                  std::span<const int64_t> strides, std::byte* out) {
  constexpr auto kRank = static_cast<size_t>(Shape::kMaxRank);
  std::array<int64_t, kRank> sizes{1, 1, 1, 1}, steps{};
  const size_t rank = strides.size(), first = kRank - rank;  // leading dimensions of 1
  for (size_t i = 0; i < rank; ++i) {
    sizes[first + i] = shape[static_cast<int>(i)];
    steps[first + i] = strides[i];
  }
  const auto element = static_cast<size_t>(block_bytes(dtype));
  for (int64_t a = 0; a < sizes[0]; ++a)
    for (int64_t b = 0; b < sizes[1]; ++b)
      for (int64_t c = 0; c < sizes[2]; ++c)
        for (int64_t d = 0; d < sizes[3]; ++d, out += element) {
          const int64_t at = a * steps[0] + b * steps[1] + c * steps[2] + d * steps[3];
          std::memcpy(out, stored.data() + static_cast<size_t>(at) * element, element);
        }
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
