// What a step reads and computes at the least: what benchmarks compare its time with.
#pragma once

#include <cstdint>

#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/decoder_spec.h"

namespace lmdeploy {

class DecoderWeights;

/// A step of sequences that are all alike.
struct StepShape {
  int64_t num_sequences = 1;
  int64_t tokens = 1;      // of each sequence in the step
  int64_t kv_len = 1;      // keys of each in the cache after it
  int64_t logit_rows = 1;  // of each
};

struct StepWork {
  double weight_bytes = 0;     // of weights, each read once
  double kv_bytes = 0;         // of keys and values, each read once
  double flops = 0;            // of matrix products and attention; a multiply-add is two
  double attention_flops = 0;  // attention's part of those
};

/// Keys that the last `tokens` of a sequence of `kv_len` see. window 0: all before them.
struct SeenKeys {
  int64_t distinct = 0;  // keys
  int64_t pairs = 0;     // of a token and a key
};
SeenKeys seen_keys(int64_t tokens, int64_t kv_len, int64_t window);

/// Of a forward pass that drops the rows without logits after the last layer's attention. Of experts, as many
/// are read as independent uniform choices of the step's tokens hit on average. `kv` is the layout of the
/// cache; each of its layers holds one layer of the model.
StepWork step_work(const DecoderSpec& spec, const DecoderWeights& weights, const KvLayout& kv,
                   const StepShape& shape);

}  // namespace lmdeploy
