// What the blocks of one forward pass share.
#pragma once

#include <optional>

#include "lmdeploy/models/step_arrays.h"

namespace lmdeploy {

struct DecoderStep {
  const StepInput& input;
  const KvCacheView& cache;
  const StepArrays& arrays;
  int64_t tokens = 0;
  ConstTensorView rope = {}, local_rope = {};          // [tokens, rotary_dim]: cos, sin
  std::optional<ConstTensorView> logn = std::nullopt;  // [tokens] f32, see DecoderSpec::logn_length
};

}  // namespace lmdeploy
