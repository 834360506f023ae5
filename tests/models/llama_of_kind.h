// A random Llama whose matrices are of any kind of weights.
#pragma once

#include "random_llama.h"

namespace lmdeploy::testing {

/// Linear layers of one kind, of random blocks with weights of about 1: norms make up for that. The rest is
/// f32.
MemoryCheckpoint make_llama_of(DType kind, const LlamaShape& shape);

}  // namespace lmdeploy::testing
