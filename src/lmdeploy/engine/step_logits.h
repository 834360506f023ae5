// The logits of one step and the hidden states they were made from: where the model left them, and where the
// host can read them.
#pragma once

#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy {

class StepLogits {
 public:
  /// `kernels` must outlive it.
  explicit StepLogits(const Kernels& kernels) : kernels_(kernels) {}

  /// What forward() has given: the former step's are gone.
  void set(TensorView logits, ConstTensorView hidden_states = {}) {
    device_ = logits;
    device_hidden_ = hidden_states;
    host_.reset();
    host_hidden_.reset();
  }
  TensorView device() const { return device_; }
  /// The first call of a step copies them from a device, as they are then.
  ConstTensorView host() {
    if (!host_) host_ = kernels_.to_host(device_, buffer_);
    return *host_;
  }
  ConstTensorView host_hidden_states() {
    if (!host_hidden_) host_hidden_ = kernels_.to_host(device_hidden_, hidden_buffer_);
    return *host_hidden_;
  }
  /// One row as it is now, until the next call.
  ConstTensorView host_row(int64_t row) { return kernels_.to_host(device_.slice_rows(row, 1), row_buffer_); }

 private:
  const Kernels& kernels_;
  TensorView device_ = {};
  ConstTensorView device_hidden_ = {};
  std::optional<ConstTensorView> host_, host_hidden_;
  Tensor buffer_, row_buffer_, hidden_buffer_;
};

}  // namespace lmdeploy
