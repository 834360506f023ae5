// Weights in the layout of panel_layout.h.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/kernels/cpu/isa.h"
#include "lmdeploy/kernels/kernels.h"

namespace lmdeploy::cpu {

/// Throws Error(kUnsupported) for a dtype without a Kind.
Kind kind_of(DType dtype);

/// The forms of the tokens that linear() reads for some kinds of weights, see PackedTokens.
struct TokenForms {
  bool plain = false;
  bool shifted = false;
  bool sums = false;
  bool int8 = false;
  bool bf16 = false;
  int64_t decode_once_tokens = 0;  // from which on all kinds gain by it

  void add(Kind kind, const Rounding& rounding) {
    const bool bytes = rounding.to_int8(kind), pairs = rounding.to_bf16(kind);
    int8 |= bytes;
    bf16 |= pairs;
    sums |= bytes || needs_sums(kind);
    if (bytes) decode_once_tokens = std::max(decode_once_tokens, cpu::decode_once_tokens(kind));
    if (!bytes && !pairs) (has_shifted_columns(kind) ? shifted : plain) = true;
  }
  void add(const TokenForms& other) {
    plain |= other.plain;
    shifted |= other.shifted;
    sums |= other.sums;
    int8 |= other.int8;
    bf16 |= other.bf16;
    decode_once_tokens = std::max(decode_once_tokens, other.decode_once_tokens);
  }
};

class CpuWeight final : public PackedWeight {
 public:
  /// Rows of one kind; the last panel is filled up with rows of zeros.
  struct Part {
    Kind kind;
    DType dtype;
    int64_t first_row;  // in the whole weight
    int64_t rows;
    int64_t num_panels;
    int64_t panel_bytes;
    int64_t offset;  // of the first panel in the buffer
  };

  /// rounding: of the tokens that it will be multiplied with.
  CpuWeight(std::span<const ConstTensorView> parts, int64_t rows, std::span<const int32_t> column_order,
            const Rounding& rounding, ThreadPool& threads);
  size_t bytes() const override { return buffer_.size() + column_order().size_bytes(); }

  const std::vector<Part>& parts() const { return parts_; }
  const std::byte* panels(const Part& part) const { return buffer_.data() + part.offset; }
  /// Panels of all parts together.
  int64_t num_panels() const { return num_panels_; }
  const TokenForms& token_forms() const { return token_forms_; }
  /// dst[k] = row `row` as stored, bit-equal to dequantize() of the original.
  void read_row(int64_t row, float* dst) const;

 private:
  std::vector<Part> parts_;
  Buffer buffer_;
  int64_t num_panels_ = 0;
  TokenForms token_forms_;
};

}  // namespace lmdeploy::cpu
