// A back end that draws tokens as a device does, on the host: what a step takes its tokens from.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "lmdeploy/engine/token_draw.h"
#include "lmdeploy/kernels/device_mirror.h"

namespace lmdeploy::testing {

class DrawingKernels : public DeviceMirror {
 public:
  DrawingKernels() : DeviceMirror(make_cpu_kernels(std::make_shared<ThreadPool>(1))) {}

  bool draws_tokens() const override { return true; }

  /// One draw out of so many is too much for the device; 0: none is.
  int too_many_each = 0;
  mutable int num_started = 0, num_finished = 0;  // calls

 private:
  void do_start_draws(TensorView logits, std::span<const TokenDraw> draws,
                      std::span<const LogitEdit> edits) const override {
    ++num_started;
    drawn_.clear();
    for (const TokenDraw& draw : draws)
      drawn_.push_back(draw_from(
          {logits.row<float>(draw.row), static_cast<size_t>(logits.cols())}, draw,
          edits.subspan(static_cast<size_t>(draw.first_edit), static_cast<size_t>(draw.num_edits))));
  }
  std::span<const DrawnToken> do_finish_draws() const override {
    ++num_finished;
    return drawn_;
  }
  void do_take_drawn(TensorView ids, ConstTensorView draws) const override {
    for (int64_t t = 0; t < ids.cols(); ++t)
      if (const int32_t draw = draws.row<int32_t>(0)[t]; draw >= 0)
        ids.row<int32_t>(0)[t] = drawn_.at(static_cast<size_t>(draw)).token;
  }

  DrawnToken draw_from(std::span<float> row, const TokenDraw& draw, std::span<const LogitEdit> edits) const {
    const float first_max = max_logit(row);
    if (!std::isfinite(first_max)) return {DrawnToken::Outcome::kNotFinite, 0, first_max};
    for (const LogitEdit& edit : edits) {
      float& logit = row[static_cast<size_t>(edit.id)];
      logit = logit < 0 ? logit * edit.repetition : logit / edit.repetition;
      logit = logit - edit.penalty + edit.bias;
    }
    const float max = max_logit(row);
    if (!std::isfinite(max)) return {DrawnToken::Outcome::kNoneLeft, 0, max};
    if (too_many_each > 0 && ++num_draws_ % too_many_each == 0)
      return {DrawnToken::Outcome::kTooMany, 0, max};
    SamplingParams params;
    params.temperature = draw.temperature;
    params.top_k = draw.top_k;
    params.top_p = draw.top_p;
    params.min_p = draw.min_p;
    return {DrawnToken::Outcome::kDrawn, draw_token(row, max, params, draw.uniform, scratch_), max};
  }

  mutable std::vector<DrawnToken> drawn_;
  mutable DrawScratch scratch_;
  mutable int num_draws_ = 0;
};

}  // namespace lmdeploy::testing
