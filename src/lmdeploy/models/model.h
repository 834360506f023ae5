// A loaded model: weights on one back end and the forward pass of a ragged step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/decoder_spec.h"
#include "lmdeploy/models/step_work.h"

namespace lmdeploy {

/// Layers whose keys and values lie in blocks of their own: a sequence has one block table for each group.
/// Every block of the cache can serve any group; it holds KvLayout::num_layers layers.
struct KvGroup {
  /// A token sees its own key and the window - 1 before it: blocks that end before that may be given back. 0:
  /// all.
  int64_t window = 0;
};

/// One ragged step: tokens of several sequences, prompt chunks and decode tokens mixed. All arrays are in
/// host memory.
struct StepInput {
  std::span<const int32_t> token_ids;  // [tokens]
  /// [tokens], or empty: tokens that take their id from this draw of the last Kernels::start_draws(), which
  /// may still be going on; negative: from token_ids. Where Model::takes_drawn_tokens().
  std::span<const int32_t> draws = {};
  std::span<const int32_t> query_start;  // [num_seqs + 1]
  std::span<const int32_t>
      kv_len;  // [num_seqs]: tokens in the cache after this step; positions follow from it
  /// [num_groups * num_seqs * max_blocks]: block ids in token order. Those of blocks that were given back,
  /// wholly before the window of the step's tokens, are never read.
  std::span<const int32_t> block_table;
  int64_t max_blocks = 0;
  /// [num_seqs]: the length from which length-dependent rope kinds choose their table: see rope_length_at().
  /// All keys of a sequence have been computed with one table.
  std::span<const int32_t> rope_length;
  std::span<const int32_t> logit_rows;  // [n]: rows of the step whose logits are wanted, ascending
  /// [ranks - 1], of a sharded model: where the data of the cache is in the memory of the other ranks.
  std::span<std::byte* const> other_caches = {};
};

struct LoadOptions {
  /// Largest number of tokens in one step; work buffers are allocated for it once.
  int64_t max_step_tokens = 8192;
  /// Largest number of logit rows in one step.
  int64_t max_logit_rows = 512;
  /// Merged over the checkpoint's config before it is read (hf_overrides); objects merge key by key.
  JsonObject config_overrides = {};
  /// For debugging: sees the tensors of each forward pass, "embedding", "layers.0.attention" and
  /// "layers.0.mlp" (what the block adds to the stream), "layers.0" (the stream after the layer), "logits".
  std::function<void(const std::string& name, ConstTensorView values)> observer = {};
  /// Called from the loading thread: bytes of the checkpoint read so far, and in all.
  std::function<void(int64_t done, int64_t total)> progress = {};
  /// What the cache will hold: a warning says where it is too little for the model.
  std::optional<DType> kv_dtype = std::nullopt;
  /// Of a rank of a sharded model, which has one for each; nullptr: the model is whole.
  Communicator* communicator = nullptr;
};

/// forward() is called by one thread at a time; the rest is const and thread-safe.
class Model {
 public:
  virtual ~Model() = default;
  virtual const DecoderSpec& spec() const = 0;
  virtual KvLayout kv_layout(DType dtype, int64_t block_len) const = 0;
  /// At least one.
  virtual std::span<const KvGroup> kv_groups() const = 0;
  /// Logits [logit_rows, head_size] of Kernels::wide_dtype() in the kernels' memory, valid until the next
  /// call; what the caller does to them does not matter. Keys and values of all tokens of the step are in the
  /// cache before the next one reads it.
  virtual TensorView forward(const StepInput& input, const KvCacheView& cache) = 0;
  /// Whether forward() reads StepInput::draws, and does not wait for a device.
  virtual bool takes_drawn_tokens() const { return false; }
  /// What the last forward() made its logits from, the output of the final norm: [logit_rows, hidden_size] of
  /// the kernels' activation type, in their memory, valid until the next call.
  virtual ConstTensorView hidden_states() const = 0;
  virtual size_t weight_bytes() const = 0;
  /// Of the buffers that steps work in; pages that no step has touched take no memory.
  virtual size_t buffer_bytes() const = 0;
  virtual StepWork step_work(const StepShape& shape, DType kv_dtype) const = 0;
  /// Where the ranks of a sharded model but the first keep their part of a cache, StepInput::other_caches.
  virtual std::vector<Allocator*> other_ranks_memory() const { return {}; }
  /// Bytes that are free for a rank's part of a cache; `kernels` are the model's, or those of its first rank.
  virtual size_t cache_memory(const Kernels& kernels) const { return kernels.available_memory(); }
};

/// Throws Error: kUnsupported (architecture not in the registry: the message lists those that are),
/// kInvalidData (all missing, unused and mis-shaped tensors in one message). Converts tensors one by one:
/// peak memory is the final size plus one tensor. `kernels` must outlive the model.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const Kernels& kernels,
                                  const LoadOptions& options);

/// The same, dealt out to ranks (docs/tensor_parallelism.md): rank r computes with kernels[r], in a thread of
/// its own. Throws besides, before any weight is read, kUnsupported for a model that so many ranks cannot
/// share.
std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, std::span<const Kernels* const> kernels,
                                  std::unique_ptr<RankGroup> group, const LoadOptions& options);

/// Architecture names of the registry, sorted.
std::vector<std::string> supported_architectures();

}  // namespace lmdeploy
