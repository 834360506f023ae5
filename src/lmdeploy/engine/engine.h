// The engine: one thread that owns all sequences, blocks and the model, and steps a persistent batch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lmdeploy/engine/request.h"
#include "lmdeploy/kernels/kernels.h"
#include "lmdeploy/models/model.h"

namespace lmdeploy {

enum class SpeculativeMethod { kNone, kPromptLookup, kDraft };

/// Guesses of the next tokens, checked together in one step (docs/speculative_decoding.md). They change no
/// token.
struct SpeculativeConfig {
  static constexpr int64_t kMostTokens = 16;
  SpeculativeMethod method = SpeculativeMethod::kNone;
  int64_t num_tokens = 1;  // guesses of a sequence in a step, at most; up to kMostTokens
  bool always = false;     // as many as that, whether they pay or not: for tests
};

struct EngineConfig {
  int64_t session_len = 0;       // 0: the model's; more than the KV pool holds is cut to it with a warning
  int64_t max_batch_size = 128;  // running sequences
  int64_t block_len = 64;        // cache_block_seq_len
  int64_t num_blocks = 0;        // > 0: that many; 0: from kv_memory_bytes
  /// 0: enough for max_batch_size sequences of session_len, or a quarter of the available memory where that
  /// is less. Reserved address space; pages are taken on first use.
  size_t kv_memory_bytes = 0;
  /// Prompt tokens in one step, of all sequences together; decode tokens come on top. With max_batch_size on
  /// top of it, at most LoadOptions::max_step_tokens of the model.
  int64_t max_prefill_token_num = 8192;
  /// A step takes at least num_tokens_per_iter prompt tokens, and more (up to max_prefill_token_num) where
  /// the prompts known would otherwise need more than max_prefill_iters steps. 0: max_prefill_token_num.
  int64_t num_tokens_per_iter = 0;
  int64_t max_prefill_iters = 1;
  bool enable_prefix_caching = false;
  DType kv_dtype = DType::kF16;     // u8, u4: int8, int4 with a scale and a min a row (KvLayout)
  int64_t max_queued_requests = 0;  // unfinished requests beyond max_batch_size; 0: unlimited
  /// Logit rows in one step; at most LoadOptions::max_logit_rows of the model. 0: the larger of 512 and
  /// max_batch_size.
  int64_t max_logit_rows = 0;
  int64_t most_logit_rows() const {
    return max_logit_rows > 0 ? max_logit_rows : std::max<int64_t>(512, max_batch_size);
  }
  /// Sessions kept between requests, session_len * 4 bytes each at most; beyond that the one unused for
  /// longest is forgotten.
  int64_t max_sessions = 4096;
  SpeculativeConfig speculative = {};
  /// Blocks of the draft model's own pool; 0: as many as hold what the model's pool holds. Where memory
  /// decides the number of blocks, both pools share it.
  int64_t draft_num_blocks = 0;
};

/// As users know it: "int8", "int4", "f16", ...
std::string_view kv_name(DType kv_dtype);

/// How many steps had up to so many tokens.
struct StepTokens {
  static constexpr std::array<int64_t, 13> kBounds = {1,   8,    16,   32,   64,   128,  256,
                                                      512, 1024, 2048, 4096, 8192, 16384};
  std::array<int64_t, kBounds.size() + 1> counts = {};  // the last one: more than the last bound
  int64_t sum = 0;

  void add(int64_t num_tokens) {
    ++counts[static_cast<size_t>(std::ranges::lower_bound(kBounds, num_tokens) - kBounds.begin())];
    sum += num_tokens;
  }
};

struct SpeculativeStats {
  int64_t num_drafts = 0, num_draft_tokens = 0, num_accepted_tokens = 0;
  std::array<int64_t, SpeculativeConfig::kMostTokens> num_accepted_tokens_per_pos = {};
  /// Of the steps that decode only, and what they would have taken longer without guesses.
  double decode_seconds = 0, saved_seconds = 0;
  /// How many times as fast decoding has been; 1 where nothing is known.
  double gain() const { return decode_seconds > 0 ? 1 + saved_seconds / decode_seconds : 1; }
};

struct EngineStats {
  int64_t total_blocks = 0, free_blocks = 0, used_blocks = 0,
          cached_blocks = 0;  // free + used + cached == total
  int64_t running = 0, waiting = 0, sessions = 0;
  int64_t finished = 0, aborted = 0, failed = 0, preemptions = 0, steps = 0;
  int64_t prompt_tokens = 0, generated_tokens = 0;
  int64_t prefix_queried_tokens = 0, prefix_hit_tokens = 0;
  /// By an error that is not a lack of memory, since the last step that did not.
  int64_t failed_steps_in_a_row = 0;
  StepTokens step_tokens = {};
  SpeculativeStats speculative = {};
};

/// All methods are thread-safe.
class Engine {
 public:
  /// Runs `model` on a KV pool allocated from `kernels`, with SpeculativeMethod::kDraft also `draft_model`.
  /// All must outlive the engine. Throws Error(kInvalidArgument) naming a config field out of range,
  /// kResourceExhausted when the pool cannot be had.
  Engine(Model& model, const Kernels& kernels, const EngineConfig& config, Model* draft_model = nullptr);
  ~Engine();  // close()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Never blocks. A request that cannot be served (too long, session busy or unknown, bad ids) ends at once
  /// with a kError output; throws Error(kClosed) after close() and Error(kResourceExhausted) when the queue
  /// is full.
  std::unique_ptr<RequestHandle> submit(Request request);
  /// Forgets a session and frees its blocks; a running request of it is cancelled. Unknown ids are ignored.
  void end_session(uint64_t session_id);
  EngineStats stats() const;
  /// The effective session length.
  int64_t session_len() const;
  /// As given, with the effective session_len, num_blocks and defaults filled in.
  const EngineConfig& config() const;
  /// Whether close() has been called.
  bool closed() const;
  /// Whether the caller is the engine's thread, in a logits processor: it can neither submit nor close.
  bool on_own_thread() const;
  /// Ends all requests with kAbort, joins the thread. A second call does nothing.
  void close();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lmdeploy
