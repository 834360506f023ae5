// Attention of one layer, from its normed input to what its output projection reads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lmdeploy/models/decoder_step.h"
#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/kv_groups.h"
#include "lmdeploy/models/workspace.h"

namespace lmdeploy {

class AttentionBlock {
 public:
  virtual ~AttentionBlock() = default;
  /// x [tokens, hidden] -> [tokens, output_size()] in `space`. The keys and values of the step go into the
  /// cache.
  virtual TensorView run(const DecoderStep& step, int64_t layer, ConstTensorView x,
                         Workspace& space) const = 0;
  virtual int64_t output_size() const = 0;
  /// Bytes of workspace that a step of `tokens` takes.
  virtual int64_t space_bytes(int64_t tokens) const = 0;
  /// Of a block of the cache with `num_layers` layers.
  virtual KvLayout kv_layout(DType dtype, int64_t block_len, int64_t num_layers) const = 0;
};

/// [num_heads]: Press et al. 2021, section 3; the original code's rule where the number of heads is no power
/// of two: the slopes of the power below it, then every second one of the power above.
std::vector<float> alibi_slopes(int64_t num_heads);

/// What q at `position` is multiplied with: Su 2021 ("log n" attention), longer contexts sharpen the softmax.
double logn_factor(int64_t position, int64_t trained_length);

/// All references must outlive the block.
std::unique_ptr<AttentionBlock> make_attention(const DecoderSpec& spec, const DecoderWeights& weights,
                                               const Kernels& kernels, const KvGrouping& groups);
std::unique_ptr<AttentionBlock> make_latent_attention(const DecoderSpec& spec, const DecoderWeights& weights,
                                                      const Kernels& kernels, const KvGrouping& groups);

}  // namespace lmdeploy
