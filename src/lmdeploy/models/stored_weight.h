// From a tensor as a checkpoint stores it to the matrices and vectors that the forward pass reads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lmdeploy/core/tensor.h"
#include "lmdeploy/models/weight_rules.h"

namespace lmdeploy {

/// Shapes that the rule's tensors may have; the first is named in messages.
std::vector<Shape> stored_shapes(const WeightRule& rule, const DecoderSpec& spec);
/// Tensors that the rule's name stands for: one, or one for each expert or head.
int64_t num_tensors(const WeightRule& rule, const DecoderSpec& spec);
/// Whether the rule has a matrix for each query head.
bool holds_heads(Stored stored);
/// Matrices that come out: one, or one for each expert or head. For rules with `cols`.
int64_t num_matrices(const WeightRule& rule, const DecoderSpec& spec);

/// Whether rows of the matrices are rows of the stored tensor, of whatever kind: else quantised ones come out
/// in f32.
bool keeps_rows(Stored stored);

/// Rows of a matrix: where they are stored, or a copy of them in another order.
struct MatrixPiece {
  Tensor copy;
  ConstTensorView view;                        // [rows, cols]
  std::span<const int32_t> column_order = {};  // of the view: TensorInfo::column_order, or empty
};
/// Matrix `index` of those in `stored`, which has one of stored_shapes() and its columns in `column_order`
/// (empty: as they are). A tensor that must be turned over is dequantised to f32 if it is of a quantised
/// kind.
MatrixPiece take_matrix(ConstTensorView stored, std::span<const int32_t> column_order, const WeightRule& rule,
                        const DecoderSpec& spec, int64_t index);
/// In f32, its columns as the layer's inputs are; nothing where they are so.
void undo_column_order(MatrixPiece& piece);

/// All elements in f32, in the order of the slot.
std::vector<float> take_vector(ConstTensorView stored, const WeightRule& rule, const DecoderSpec& spec);

}  // namespace lmdeploy
