// Checkpoints without files: the shape of a known model, random weights of any kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/dtype.h"
#include "lmdeploy/formats/checkpoint.h"

namespace lmdeploy {

/// "llama-1b", ...
std::vector<std::string> model_shape_names();

/// Weights that are made when they are asked for, so that no more of them exist than the reader holds. Norms
/// and biases are f32. Of the kinds of AWQ, GPTQ, W8A8 and fp8 checkpoints embedding, head and router are
/// f16, as in those.
class RandomCheckpoint : public Checkpoint {
 public:
  /// Seconds spent in making weights.
  virtual double making_seconds() const = 0;
};

/// Throws Error: kInvalidArgument for an unknown shape; kUnsupported where the rows of a matrix are no whole
/// blocks of `weights`, or where it is no kind of weights.
std::unique_ptr<RandomCheckpoint> make_random_checkpoint(const std::string& shape, DType weights,
                                                         uint64_t seed);

}  // namespace lmdeploy
