// One function for each way of storing a weight.
#include "lmdeploy/models/stored_weight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {
namespace {

bool holds_experts(Stored stored) {
  return stored == Stored::kExperts || stored == Stored::kExpertsTransposed ||
         stored == Stored::kExpertsPaired || stored == Stored::kExpertsPairedTransposed;
}
bool is_transposed(Stored stored) {
  return stored == Stored::kTransposed || stored == Stored::kExpertsTransposed ||
         stored == Stored::kExpertsPairedTransposed;
}
bool is_paired(Stored stored) {
  return stored == Stored::kExpertsPaired || stored == Stored::kExpertsPairedTransposed;
}

// Rows of all outer dimensions as one.
ConstTensorView flat(ConstTensorView t) {
  return {t.data(), t.dtype(), {t.rows(), t.cols()}, t.row_stride_bytes()};
}

Tensor dequantized(ConstTensorView rows) {
  Tensor out(DType::kF32, {rows.rows(), rows.cols()});
  for (int64_t r = 0; r < rows.rows(); ++r)
    dequantize(rows.dtype(), rows.row_data(r), out.view().row<float>(r), rows.cols());
  return out;
}

// out[i] = rows[source(i)]
MatrixPiece select_rows(ConstTensorView rows, int64_t count, FunctionRef<int64_t(int64_t)> source) {
  MatrixPiece piece = {Tensor(rows.dtype(), {count, rows.cols()}), {}};
  const auto bytes = static_cast<size_t>(row_bytes(rows.dtype(), rows.cols()));
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(piece.copy.view().row_data(i), rows.row_data(source(i)), bytes);
  piece.view = piece.copy;
  return piece;
}

// out[i][j] = rows[j][source(i)]
MatrixPiece turn_over(ConstTensorView rows, int64_t count, FunctionRef<int64_t(int64_t)> source) {
  Tensor wide;
  if (is_quantized(rows.dtype())) rows = wide = dequantized(rows);
  MatrixPiece piece = {Tensor(rows.dtype(), {count, rows.rows()}), {}};
  const auto bytes = static_cast<size_t>(block_bytes(rows.dtype()));
  for (int64_t j = 0; j < rows.rows(); ++j)
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(piece.copy.view().row_data(i) + static_cast<size_t>(j) * bytes,
                  rows.row_data(j) + static_cast<size_t>(source(i)) * bytes, bytes);
  piece.view = piece.copy;
  return piece;
}

// Where row `i` of [q | k | v] is among rows grouped by kv head.
int64_t grouped_row(int64_t i, const DecoderSpec& spec) {
  const int64_t dim = spec.head_dim, per_group = spec.num_heads / spec.num_kv_heads;
  const int64_t head = i / dim, within = i % dim;
  int64_t group = head / per_group, place = head % per_group;
  if (head >= spec.num_heads) {
    group = (head - spec.num_heads) % spec.num_kv_heads;
    place = per_group + (head - spec.num_heads) / spec.num_kv_heads;
  }
  return (group * (per_group + 2) + place) * dim + within;
}

MatrixPiece unit_rows(ConstTensorView rows) {
  MatrixPiece piece = {dequantized(rows), {}};
  for (int64_t r = 0; r < rows.rows(); ++r) {
    auto* row = piece.copy.view().row<float>(r);
    double sum_sq = 0;
    for (int64_t i = 0; i < rows.cols(); ++i) sum_sq += static_cast<double>(row[i]) * row[i];
    const double scale = 1 / std::max(std::sqrt(sum_sq), 1e-12);
    for (int64_t i = 0; i < rows.cols(); ++i) row[i] = static_cast<float>(row[i] * scale);
  }
  piece.view = piece.copy;
  return piece;
}

constexpr auto same = [](int64_t i) { return i; };

// Where row `i` of [gate | up] is among rows that alternate between the two.
int64_t paired_row(int64_t i, int64_t rows) { return i < rows / 2 ? 2 * i : 2 * (i - rows / 2) + 1; }

MatrixPiece take_expert(ConstTensorView rows, const WeightRule& rule, const DecoderSpec& spec,
                        int64_t expert) {
  const int64_t count = size_of(rule.rows, spec), cols = size_of(rule.cols, spec);
  const auto unpaired = [&](int64_t i) { return paired_row(i, count); };
  if (is_transposed(rule.stored)) {
    const ConstTensorView own = rows.slice_rows(expert * cols, cols);
    return is_paired(rule.stored) ? turn_over(own, count, unpaired) : turn_over(own, count, same);
  }
  const ConstTensorView own = rows.slice_rows(expert * count, count);
  if (is_paired(rule.stored)) return select_rows(own, count, unpaired);
  return {Tensor(), own};
}

MatrixPiece take_head(ConstTensorView rows, const WeightRule& rule, const DecoderSpec& spec, int64_t head) {
  const LatentSpec& latent = spec.latent;
  if (rule.stored == Stored::kHeads) {
    const int64_t count = size_of(rule.rows, spec);
    return {Tensor(), rows.slice_rows(head * count, count)};
  }
  const int64_t first = head * (latent.nope_dim + latent.value_dim);
  if (rule.stored == Stored::kHeadValues)
    return {Tensor(), rows.slice_rows(first + latent.nope_dim, latent.value_dim)};
  return turn_over(rows.slice_rows(first, latent.nope_dim), rows.cols(), same);
}

MatrixPiece take_rows(ConstTensorView rows, const WeightRule& rule, const DecoderSpec& spec, int64_t index) {
  if (holds_experts(rule.stored)) return take_expert(rows, rule, spec, index);
  if (holds_heads(rule.stored)) return take_head(rows, rule, spec, index);
  if (rule.stored == Stored::kTransposed) return turn_over(rows, rows.cols(), same);
  if (rule.stored == Stored::kUnitRows) return unit_rows(rows);
  if (rule.stored == Stored::kGroupedQkv)
    return select_rows(rows, rows.rows(), [&](int64_t i) { return grouped_row(i, spec); });
  return {Tensor(), rows};
}

}  // namespace

bool holds_heads(Stored stored) {
  return stored == Stored::kHeads || stored == Stored::kHeadKeys || stored == Stored::kHeadValues;
}

std::vector<Shape> stored_shapes(const WeightRule& rule, const DecoderSpec& spec) {
  const int64_t rows = size_of(rule.rows, spec);
  const bool experts = holds_experts(rule.stored);
  if (rule.cols == Dim::kNone) {
    if (experts) return {{spec.experts.num_experts, rows}};
    return {{rows}};
  }
  const int64_t cols = size_of(rule.cols, spec);
  const int64_t outer = is_transposed(rule.stored) ? cols : rows,
                inner = is_transposed(rule.stored) ? rows : cols;
  if (experts) return {{spec.experts.num_experts, outer, inner}, {spec.experts.num_experts * outer, inner}};
  if (rule.stored == Stored::kHeads) return {{spec.num_heads, outer, inner}};
  if (rule.rows == Dim::kOne) return {{1, inner}, {inner}};
  return {{outer, inner}};
}

int64_t num_tensors(const WeightRule& rule, const DecoderSpec& spec) {
  if (rule.name.find("{e}") != std::string_view::npos) return spec.experts.num_experts;
  if (rule.name.find("{h}") != std::string_view::npos) return spec.num_heads;
  if (rule.name.find("{g}") != std::string_view::npos) return spec.num_kv_heads;
  return 1;
}

int64_t num_matrices(const WeightRule& rule, const DecoderSpec& spec) {
  if (holds_heads(rule.stored)) return spec.num_heads;
  return holds_experts(rule.stored) ? spec.experts.num_experts : num_tensors(rule, spec);
}

bool keeps_rows(Stored stored) {
  return !is_transposed(stored) && stored != Stored::kHeadKeys && stored != Stored::kUnitRows;
}

void undo_column_order(MatrixPiece& piece) {
  if (piece.column_order.empty()) return;
  const Tensor wide = dequantized(piece.view);
  Tensor out(DType::kF32, wide.shape());
  for (int64_t r = 0; r < wide.dim(0); ++r)
    for (size_t k = 0; k < piece.column_order.size(); ++k)
      out.view().row<float>(r)[piece.column_order[k]] = wide.view().row<float>(r)[k];
  piece.copy = std::move(out);
  piece.view = piece.copy;
  piece.column_order = {};
}

MatrixPiece take_matrix(ConstTensorView stored, std::span<const int32_t> column_order, const WeightRule& rule,
                        const DecoderSpec& spec, int64_t index) {
  MatrixPiece all = {Tensor(), flat(stored), column_order};
  if (!keeps_rows(rule.stored)) undo_column_order(all);
  MatrixPiece piece = take_rows(all.view, rule, spec, index);
  piece.column_order = all.column_order;
  return piece;
}

std::vector<float> take_vector(ConstTensorView stored, const WeightRule& rule, const DecoderSpec& spec) {
  const int64_t count = stored.shape().numel();
  std::vector<float> in(static_cast<size_t>(count));
  for (int64_t r = 0; r < stored.rows(); ++r)
    dequantize(stored.dtype(), stored.row_data(r), in.data() + r * stored.cols(), stored.cols());
  const int64_t size = size_of(rule.rows, spec);
  std::vector<float> out(in.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i / size * size, within = i % size;
    int64_t source = within;
    if (rule.stored == Stored::kGroupedQkv) source = grouped_row(within, spec);
    if (is_paired(rule.stored)) source = paired_row(within, size);
    out[static_cast<size_t>(i)] = in[static_cast<size_t>(begin + source)];
  }
  return out;
}

}  // namespace lmdeploy
