// The logits of one step: where the model left them, and where the host can read them.
#pragma once

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

class StepLogits {
 public:
  /// `kernels` must outlive it.
  explicit StepLogits(const Kernels& kernels) : kernels_(kernels) {}

  /// What forward() has given: the former step's are gone.
  void set(TensorView logits) {
    device_ = logits;
    host_.reset();
  }
  TensorView device() const { return device_; }
  /// The first call of a step copies them from a device, as they are then.
  ConstTensorView host() {
    if (!host_) host_ = kernels_.to_host(device_, buffer_);
    return *host_;
  }
  /// One row as it is now, until the next call.
  ConstTensorView host_row(int64_t row) { return kernels_.to_host(device_.slice_rows(row, 1), row_buffer_); }

 private:
  const Kernels& kernels_;
  TensorView device_ = {};
  std::optional<ConstTensorView> host_;
  Tensor buffer_, row_buffer_;
};

}  // namespace lmdeploy
