// Models whose keys and values lose more in codes of few bits than they should.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lmdeploy/core/tensor.h"

namespace lmdeploy {

/// What is known before an answer shows it: measured families, and biases of keys, which put outliers into
/// every key.
class KvRisk {
 public:
  void add_key_bias(std::span<const float> bias);
  /// Why perplexity rises by more than 0.5 % with a cache in 8 bits, by more than 5 % in 4; "" where it does
  /// not, as far as is known. For biases: kv_codes_test.
  std::string warning(DType kv_dtype, std::string_view architecture) const;

 private:
  float largest_bias_ = 0;
};

}  // namespace lmdeploy
