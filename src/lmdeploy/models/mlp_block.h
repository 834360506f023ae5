// The MLP of one layer: dense, or a mixture of experts.
#pragma once

#include "lmdeploy/models/decoder_weights.h"
#include "lmdeploy/models/workspace.h"

namespace lmdeploy {

class MlpBlock {
 public:
  /// All references must outlive the block.
  MlpBlock(const DecoderSpec& spec, const DecoderWeights& weights, const Kernels& kernels)
      : spec_(spec), weights_(weights), kernels_(kernels) {}

  /// x [rows, hidden] -> out [rows, hidden]; they may not overlap.
  void run(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const;
  /// Bytes of workspace that `rows` take.
  int64_t space_bytes(int64_t rows) const;

 private:
  struct DenseSlots {
    Slot up, up_bias, down, down_bias;
  };
  void run_dense(int64_t layer, ConstTensorView x, TensorView out, int64_t inner, const DenseSlots& slots,
                 Workspace& space) const;
  void run_experts(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const;
  void add_shared_expert(int64_t layer, ConstTensorView x, TensorView out, Workspace& space) const;
  void activate(TensorView out, TensorView up) const;
  int64_t up_size(int64_t inner) const { return spec_.gated ? 2 * inner : inner; }
  int64_t dense_bytes(int64_t rows, int64_t inner) const;

  const DecoderSpec& spec_;
  const DecoderWeights& weights_;
  const Kernels& kernels_;
};

}  // namespace lmdeploy
