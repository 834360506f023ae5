// From an EngineConfig to a number of blocks and a session length.
#include "lmdeploy/engine/kv_pool.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/core/log.h"

namespace lmdeploy {
namespace {

void require(std::string_view field, int64_t value, int64_t least) {
  if (value < least)
    throw Error(ErrorCode::kInvalidArgument,
                cat("engine config: ", field, " is ", value, "; expected at least ", least));
}

void check_fields(const EngineConfig& config) {
  require("session_len", config.session_len, 0);
  require("max_batch_size", config.max_batch_size, 1);
  require("block_len", config.block_len, 1);
  require("num_blocks", config.num_blocks, 0);
  require("max_prefill_token_num", config.max_prefill_token_num, 1);
  require("num_tokens_per_iter", config.num_tokens_per_iter, 0);
  require("max_prefill_iters", config.max_prefill_iters, 1);
  require("max_queued_requests", config.max_queued_requests, 0);
  require("max_logit_rows", config.max_logit_rows, 0);
  require("max_sessions", config.max_sessions, 0);
  require("draft_num_blocks", config.draft_num_blocks, 0);
  if (config.max_logit_rows > 0) require("max_logit_rows", config.max_logit_rows, config.max_batch_size);
}

void check_speculative(const SpeculativeConfig& config, const Model& model, const Model* draft_model) {
  if (config.method == SpeculativeMethod::kNone) return;
  if (config.num_tokens < 1 || config.num_tokens > SpeculativeConfig::kMostTokens)
    throw Error(ErrorCode::kInvalidArgument,
                cat("engine config: num_speculative_tokens is ", config.num_tokens, "; expected 1 to ",
                    SpeculativeConfig::kMostTokens));
  if (config.method != SpeculativeMethod::kDraft) return;
  LMD_CHECK(draft_model != nullptr, "no draft model");
  const int64_t own = model.spec().vocab_size, drafted = draft_model->spec().vocab_size;
  if (own != drafted)
    throw Error(ErrorCode::kInvalidArgument,
                cat("draft model: its vocabulary has ", drafted, " tokens, the model's has ", own,
                    "; both must be the same"));
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Positions and block ids of a step are 32-bit; nothing below may overflow on the way to them either.
constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

// What a full batch holds, and the prompt chunks of a step on top in window groups.
int64_t most_useful_blocks(const EngineConfig& config, const BlockGroups& groups) {
  return config.max_batch_size * groups.least_for(config.session_len) +
         groups.num_windows() * groups.blocks_for(std::min(config.max_prefill_token_num, kMaxTokens));
}

// Of a draft model's blocks that go with `num_blocks` of the model's.
int64_t draft_blocks_for(int64_t num_blocks, const Model& model, const Model& draft_model) {
  return ceil_div(num_blocks * static_cast<int64_t>(draft_model.kv_groups().size()),
                  static_cast<int64_t>(model.kv_groups().size()));
}

// A block and its share of the draft model's pool.
size_t bytes_with_draft(const EngineConfig& config, const Model& model, const Model* draft_model) {
  int64_t bytes = model.kv_layout(config.kv_dtype, config.block_len).block_bytes();
  if (draft_model != nullptr && config.draft_num_blocks == 0)
    bytes += draft_blocks_for(1, model, *draft_model) *
             draft_model->kv_layout(config.kv_dtype, config.block_len).block_bytes();
  return static_cast<size_t>(bytes);
}

int64_t choose_num_blocks(const EngineConfig& config, const KvLayout& layout, const BlockGroups& groups,
                          size_t available_bytes, size_t block_bytes) {
  if (config.num_blocks > 0) return config.num_blocks;
  const size_t bytes = config.kv_memory_bytes > 0 ? config.kv_memory_bytes : available_bytes / 4;
  if (bytes < block_bytes)
    throw Error(ErrorCode::kInvalidArgument,
                cat("engine config: a KV cache of ", bytes, " bytes holds no block; one of ",
                    config.block_len, " tokens in ", kv_name(layout.dtype), " has ", block_bytes,
                    " bytes: raise cache_max_entry_count or lower cache_block_seq_len"));
  const auto num_blocks = static_cast<int64_t>(bytes / block_bytes);
  if (config.kv_memory_bytes > 0) return num_blocks;
  return std::min(num_blocks, most_useful_blocks(config, groups));
}

void choose_session_len(EngineConfig& config, const DecoderSpec& spec) {
  const int64_t max_positions = spec.max_positions;
  if (config.session_len == 0) {
    config.session_len = max_positions;
  } else if (config.session_len > max_positions && spec.learned_positions) {
    throw Error(ErrorCode::kInvalidArgument,
                cat("engine config: session_len is ", config.session_len, "; expected at most ",
                    max_positions, ": the model has learned that many positions and knows no others"));
  } else if (config.session_len > max_positions) {
    LMD_LOG(kWarning, "session_len ", config.session_len, " is more than the ", max_positions,
            " positions that the model was made for");
  }
  config.session_len = std::min(config.session_len, kMaxTokens);
}

void cut_session_len(EngineConfig& config, const BlockGroups& groups) {
  const int64_t held = groups.longest(config.num_blocks);
  if (config.session_len <= held) return;
  if (held == 0)
    throw Error(
        ErrorCode::kInvalidArgument,
        cat("engine config: a KV cache of ", config.num_blocks, " blocks holds no sequence: the model has ",
            groups.size(), " groups of layers, each needs a block of its own; raise cache_max_entry_count"));
  LMD_LOG(kWarning, "session_len ", config.session_len, " does not fit the KV cache: its ", config.num_blocks,
          " blocks of ", config.block_len, " tokens hold ", held,
          groups.size() > 1 ? cat(" in each of ", groups.size(), " groups of layers") : "",
          "; session_len is now ", held, ". A larger cache_max_entry_count holds longer sessions");
  config.session_len = held;
}

void fill_defaults(EngineConfig& config) {
  if (config.num_tokens_per_iter == 0) {
    config.num_tokens_per_iter = config.max_prefill_token_num;
    config.max_prefill_iters = ceil_div(config.session_len, config.max_prefill_token_num);
  }
  config.max_logit_rows = config.most_logit_rows();
}

Buffer allocate(const KvLayout& layout, int64_t num_blocks, Allocator& allocator, size_t free_bytes) {
  const auto block_bytes = static_cast<size_t>(layout.block_bytes());
  try {
    return {static_cast<size_t>(num_blocks) * block_bytes, allocator};
  } catch (const Error& error) {
    throw Error(error.code(), cat("KV cache of ", num_blocks, " blocks: ", error.what(), "; ",
                                  free_bytes / block_bytes, " blocks of ", block_bytes,
                                  " bytes fit: lower cache_max_entry_count (a share of the free memory, or a "
                                  "number of blocks), session_len or max_batch_size"));
  }
}

}  // namespace

std::string_view kv_name(DType kv_dtype) {
  return kv_dtype == DType::kU8 ? "int8" : kv_dtype == DType::kU4 ? "int4" : to_string(kv_dtype);
}

EngineConfig resolve_config(EngineConfig config, const Model& model, size_t available_bytes,
                            const Model* draft_model) {
  check_fields(config);
  check_speculative(config.speculative, model, draft_model);
  choose_session_len(config, model.spec());
  const BlockGroups groups(config.block_len, model.kv_groups());
  const KvLayout layout = model.kv_layout(config.kv_dtype, config.block_len);
  config.num_blocks = std::min(choose_num_blocks(config, layout, groups, available_bytes,
                                                 bytes_with_draft(config, model, draft_model)),
                               kMaxTokens / config.block_len);
  cut_session_len(config, groups);
  fill_defaults(config);
  if (draft_model != nullptr && config.draft_num_blocks == 0)
    config.draft_num_blocks = draft_blocks_for(config.num_blocks, model, *draft_model);
  return config;
}

KvPool::KvPool(const Model& model, const KvLayout& layout, int64_t num_blocks, const Kernels& kernels)
    : layout_(layout), num_blocks_(num_blocks) {
  const size_t free_bytes = model.cache_memory(kernels);
  buffer_ = allocate(layout, num_blocks, kernels.allocator(), free_bytes);
  for (Allocator* memory : model.other_ranks_memory()) {
    other_buffers_.push_back(allocate(layout, num_blocks, *memory, free_bytes));
    other_caches_.push_back(other_buffers_.back().data());
  }
}

}  // namespace lmdeploy
