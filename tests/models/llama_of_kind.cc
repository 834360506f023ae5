#include "llama_of_kind.h"

#include <string>
#include <utility>

#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/testing.h"

namespace lmdeploy::testing {

MemoryCheckpoint make_llama_of(DType kind, const LlamaShape& shape) {
  constexpr double kInputs = 1.0 / 16;
  const MemoryCheckpoint plain = make_random_llama(shape, 5);
  MemoryCheckpoint out;
  out.mutable_config() = plain.config().as_object();
  Rng rng(7);
  for (size_t i = 0; i < plain.tensors().size(); ++i) {
    const std::string& name = plain.tensors()[i].name;
    const ConstTensorView view = plain.tensor(i);
    if (name.ends_with("_proj.weight")) {
      out.add(name, random_weight(rng, kind, view.dim(0), view.dim(1)));
      continue;
    }
    const double factor = name.ends_with("layernorm.weight") ? kInputs : 1;
    Tensor copy(DType::kF32, view.shape());
    for (int64_t r = 0; r < view.rows(); ++r)
      for (int64_t c = 0; c < view.cols(); ++c) copy.view().set(r, c, factor * view.at(r, c));
    out.add(name, std::move(copy));
  }
  return out;
}

}  // namespace lmdeploy::testing
