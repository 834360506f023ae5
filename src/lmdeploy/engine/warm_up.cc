// Steps over a cache of one block, which all sequences share: what they compute is nobody's.
#include "lmdeploy/engine/warm_up.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/kv_pool.h"
#include "lmdeploy/models/step_recordings.h"

namespace lmdeploy {
namespace {

class WarmUp {
 public:
  WarmUp(Model& model, const Kernels& kernels, const EngineConfig& config)
      : model_(model),
        kernels_(kernels),
        config_(config),
        groups_(config.block_len, model.kv_groups()),
        layout_(model.kv_layout(config.kv_dtype, config.block_len)),
        pool_(model, layout_, /*num_blocks=*/1, kernels),
        session_len_(longest_session()) {}

  void run_largest(int64_t max_prefill_token_num) {
    const int64_t prompt = std::min(max_prefill_token_num, session_len_);
    const int64_t batch = config_.max_batch_size, rows = std::max(batch, config_.most_logit_rows());
    run(prompt, batch, std::min(prompt, rows - batch + 1));
    run(1, batch, 1);
  }

  /// Of each recording that is made of steps of a full batch.
  size_t recording_bytes() {
    const size_t before = model_.cache_memory(kernels_);
    for (int64_t i = 0; i <= StepRecordings::kRunsBefore; ++i) run(1, config_.max_batch_size, 1);
    const size_t after = model_.cache_memory(kernels_);
    return before - std::min(before, after);
  }

 private:
  int64_t longest_session() const {
    const auto held = static_cast<int64_t>(model_.cache_memory(kernels_)) / layout_.block_bytes();
    const int64_t wanted = config_.session_len > 0 ? config_.session_len : model_.spec().max_positions;
    return std::max<int64_t>(1, std::min(wanted, groups_.longest(held)));
  }

  /// The first sequence has `first_tokens`, of which the last `rows` give logits; the others one, with its
  /// row.
  void run(int64_t first_tokens, int64_t num_seqs, int64_t rows) {
    const int64_t tokens = first_tokens + num_seqs - 1, first_row = first_tokens - rows;
    const std::vector<int32_t> ids(static_cast<size_t>(tokens), 0);
    std::vector<int32_t> query_start = {0}, kv_len, logit_rows(static_cast<size_t>(tokens - first_row));
    for (int64_t s = 0; s < num_seqs; ++s) {
      query_start.push_back(static_cast<int32_t>(first_tokens + s));
      kv_len.push_back(query_start.back() - query_start[static_cast<size_t>(s)]);
    }
    std::iota(logit_rows.begin(), logit_rows.end(), static_cast<int32_t>(first_row));
    const int64_t max_blocks = groups_.blocks_for(session_len_);
    const std::vector<int32_t> block_table(groups_.size() * static_cast<size_t>(num_seqs * max_blocks), 0);
    const StepInput input = {.token_ids = ids,
                             .query_start = query_start,
                             .kv_len = kv_len,
                             .block_table = block_table,
                             .max_blocks = max_blocks,
                             .rope_length = kv_len,
                             .logit_rows = logit_rows,
                             .other_caches = pool_.other_caches()};
    draw(model_.forward(input, pool_.view()));
  }

  void draw(TensorView logits) const {
    if (!kernels_.draws_tokens() || model_.spec().gives_score) return;
    std::vector<TokenDraw> draws(static_cast<size_t>(std::min(logits.rows(), config_.max_batch_size)));
    for (size_t i = 0; i < draws.size(); ++i)
      draws[i] = {.row = static_cast<int32_t>(i), .temperature = 1, .top_p = 0.5f};
    kernels_.start_draws(logits, draws, {});
    kernels_.finish_draws();
  }

  Model& model_;
  const Kernels& kernels_;
  const EngineConfig& config_;
  const BlockGroups groups_;
  const KvLayout layout_;
  const KvPool pool_;
  const int64_t session_len_;
};

constexpr int64_t kNone = 0;

// The largest half, quarter, ... of max_prefill_token_num with which the steps find the memory they need.
int64_t fitting_prefill(Model& model, const Kernels& kernels, const EngineConfig& config) {
  for (int64_t tokens = config.max_prefill_token_num / 2; tokens > 0; tokens /= 2) {
    try {
      WarmUp(model, kernels, config).run_largest(tokens);
      return tokens;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResourceExhausted) throw;
    }
  }
  return kNone;
}

// Tried, as what a step needs is the back end's own affair: the start has failed, so that there is time.
std::string what_to_lower(Model& model, const Kernels& kernels, const EngineConfig& config) {
  const int64_t fits = fitting_prefill(model, kernels, config);
  if (fits != kNone)
    return cat("lower max_prefill_token_num from ", config.max_prefill_token_num, " to ", fits,
               ", which fits, or max_batch_size or session_len");
  return cat("lower max_batch_size (", config.max_batch_size,
             ") or session_len: no max_prefill_token_num fits beside these");
}

}  // namespace

size_t warm_up(Model& model, const Kernels& kernels, const EngineConfig& config) {
  if (!kernels.has_own_memory()) return 0;
  std::string why;
  try {
    WarmUp steps(model, kernels, config);
    steps.run_largest(config.max_prefill_token_num);
    return steps.recording_bytes() * StepRecordings::kMostKept;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted)
      throw Error(error.code(), cat("at the start, in the largest steps: ", error.what()));
    why = error.what();
  }
  throw Error(ErrorCode::kResourceExhausted, cat("memory for the work of the largest steps: ", why, "; ",
                                                 what_to_lower(model, kernels, config)));
}

}  // namespace lmdeploy
