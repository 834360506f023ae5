// A rank's share of a weight.
#pragma once

#include <vector>

#include "lmdeploy/models/sharding.h"
#include "lmdeploy/models/stored_weight.h"

namespace lmdeploy {

/// The rows and columns of these runs: a view of `whole` where nothing has to be put together. Runs of
/// columns begin and end between the blocks of the kind; where they are not all columns, those are in the
/// inputs' order.
MatrixPiece take_share(const MatrixPiece& whole, const ShardRuns& rows, const ShardRuns& cols);
std::vector<float> take_share(const std::vector<float>& whole, const ShardRuns& elements);

/// Zeros of the shape and kind of another matrix.
MatrixPiece zeros_like(const MatrixPiece& piece);

}  // namespace lmdeploy
