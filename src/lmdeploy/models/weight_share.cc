#include "lmdeploy/models/weight_share.h"

#include <cstring>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

int64_t total(const ShardRuns& runs) {
  int64_t count = 0;
  for (const ShardRun& run : runs) count += run.count;
  return count;
}

// Bytes of zeros are blocks of zeros in every kind: with a scale of 0, or of a code of 0.
MatrixPiece zeros(DType dtype, int64_t rows, int64_t cols) {
  MatrixPiece piece = {Tensor(dtype, {rows, cols}), {}};
  std::memset(piece.copy.view().data(), 0, piece.copy.bytes());
  piece.view = piece.copy;
  return piece;
}

void copy_cols(std::byte* out, const std::byte* row, DType dtype, const ShardRuns& cols) {
  for (const ShardRun& run : cols) {
    const auto bytes = static_cast<size_t>(row_bytes(dtype, run.count));
    if (run.begin != ShardRun::kZeros) std::memcpy(out, row + row_bytes(dtype, run.begin), bytes);
    out += bytes;
  }
}

}  // namespace

MatrixPiece take_share(const MatrixPiece& whole, const ShardRuns& rows, const ShardRuns& cols) {
  const ConstTensorView& view = whole.view;
  const bool all_cols = cols == ShardRuns{{0, view.cols()}};
  LMD_CHECK(all_cols || whole.column_order.empty(), "columns have an order of their own");
  if (all_cols && rows.size() == 1 && rows[0].begin != ShardRun::kZeros)
    return {Tensor(), view.slice_rows(rows[0].begin, rows[0].count), whole.column_order};
  MatrixPiece share = zeros(view.dtype(), total(rows), total(cols));
  share.column_order = whole.column_order;
  int64_t to = 0;
  for (const ShardRun& run : rows) {
    for (int64_t i = 0; i < run.count; ++i, ++to)
      if (run.begin != ShardRun::kZeros)
        copy_cols(share.copy.view().row_data(to), view.row_data(run.begin + i), view.dtype(), cols);
  }
  return share;
}

std::vector<float> take_share(const std::vector<float>& whole, const ShardRuns& elements) {
  std::vector<float> share;
  for (const ShardRun& run : elements) {
    const auto count = static_cast<std::ptrdiff_t>(run.count);
    if (run.begin == ShardRun::kZeros)
      share.insert(share.end(), static_cast<size_t>(run.count), 0.0f);
    else
      share.insert(share.end(), whole.begin() + run.begin, whole.begin() + run.begin + count);
  }
  return share;
}

MatrixPiece zeros_like(const MatrixPiece& piece) {
  return zeros(piece.view.dtype(), piece.view.rows(), piece.view.cols());
}

}  // namespace lmdeploy
