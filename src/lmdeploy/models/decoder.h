// The forward pass of decoder-only models, written once against Kernels; it reads the spec and nothing else.
#pragma once

#include <memory>

#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// Blocks one after the other, x += attention(norm(x)); x += mlp(norm(x)), or side by side, x +=
/// attention(norm(x)) + mlp(norm(x)); see DecoderSpec for the variants. `kernels` must outlive the model.
std::unique_ptr<Model> make_decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                                    const LoadOptions& options);

}  // namespace lmdeploy
