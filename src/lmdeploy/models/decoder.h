// The forward pass of decoder-only models, written once against Kernels; it reads the spec and nothing else.
#pragma once

#include <memory>

#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

/// Pre-norm blocks: x += attention(norm(x)); x += down(silu(gate) * up)(norm(x)). `kernels` must outlive the
/// model.
std::unique_ptr<Model> make_decoder(const DecoderSpec& spec, DecoderWeights weights, const Kernels& kernels,
                                    const LoadOptions& options);

}  // namespace lmdeploy
