// How a hub checkpoint says its weights are quantised: quantization_config of config.json, a file of its own
// in older checkpoints, or the tensors alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/formats/weight_format.h"

namespace lmdeploy {

struct QuantConfig {
  WeightFormat format = WeightFormat::kHf;
  std::string where;                           // the file and key that say so, for messages
  std::vector<int64_t> bits;                   // of the integers; empty: not said
  std::vector<int64_t> group_sizes;            // inputs that share a scale, -1: all of a row; empty: not said
  int64_t block_rows = 128, block_cols = 128;  // fp8 in blocks
  bool zero_is_less_one = true;                // gptq: zeros are stored less one (before gptq_v2)
  bool needs_zeros = false;                    // all integers have a zero in a tensor
  bool needs_group_index = false;              // inputs choose their groups ("act-order")
};

/// kHf when nothing is quantised. Throws Error: kUnsupported for methods, kinds and sizes that are not
/// supported, naming them and what is; kInvalidData for a config that is broken.
QuantConfig read_quant_config(const Checkpoint& checkpoint);

}  // namespace lmdeploy
