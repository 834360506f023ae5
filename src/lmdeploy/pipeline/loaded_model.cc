#include "lmdeploy/pipeline/loaded_model.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/warm_up.h"
#include "lmdeploy/formats/checkpoint.h"
#include "lmdeploy/kernels/communicator.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/pipeline/device.h"
#include "lmdeploy/pipeline/engine_options.h"
#include "lmdeploy/pipeline/memory_report.h"
#include "lmdeploy/pipeline/speculative.h"
#include "lmdeploy/pipeline/stop_rules.h"

namespace lmdeploy {
namespace {

std::string local_path(const PipelineConfig& config) {
  if (!config.local_path.empty()) return config.local_path;
  if (!config.hub) return config.model_path;
  const ModelRequest request = {config.model_path, config.revision, config.download_dir};
  return fetch_model(request, *config.hub, config.hub_hooks);
}

/// nullptr when the checkpoint has none; a broken one is an error.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  try {
    return Tokenizer::load(tokenizer_path(path));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) throw;
    LMD_LOG(kInfo, "prompts must be token ids: ", error.what());
    return nullptr;
  }
}

std::shared_ptr<const ChatTemplate> load_chat_template(const PipelineConfig& config,
                                                       const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return nullptr;
  return choose_chat_template(config.model_path, config.chat_template, tokenizer->chat_template(),
                              tokenizer->bos_token(), tokenizer->eos_token());
}

/// hf_overrides over rope_scaling_factor over the checkpoint's config.
JsonObject config_overrides(const PipelineConfig& config) {
  JsonObject overrides;
  const bool says_scaling = config.hf_overrides.contains("rope_scaling");
  if (*config.rope_scaling_factor >= 1 && says_scaling)
    LMD_LOG(kWarning, "rope_scaling_factor ", *config.rope_scaling_factor,
            " has no effect: hf_overrides has rope_scaling");
  if (*config.rope_scaling_factor >= 1 && !says_scaling)
    overrides["rope_scaling"] =
        JsonObject({{"rope_type", "dynamic"}, {"factor", *config.rope_scaling_factor}});
  if (config.use_logn_attn) overrides["use_logn_attn"] = *config.use_logn_attn;
  for (const auto& entry : config.hf_overrides) overrides.insert_or_assign(entry.key(), entry.value());
  return overrides;
}

/// A step takes long on a CPU: answers that run wait for it, and nothing interrupts it.
int64_t most_prompt_tokens(const PipelineConfig& config, const Kernels& kernels) {
  constexpr int64_t kOnCpu = 256;  // 512: 4 % more answers of a server, but pauses of 240 instead of 145 ms
  const int64_t most = *config.max_prefill_token_num;
  return kernels.has_own_memory() ? most : std::min(most, std::max(kOnCpu, *config.num_tokens_per_iter));
}

LoadOptions load_options(const PipelineConfig& config, const Kernels& kernels) {
  LoadOptions options;
  options.max_step_tokens =
      std::max(most_prompt_tokens(config, kernels), *config.num_tokens_per_iter) + *config.max_batch_size;
  options.max_logit_rows = std::max(options.max_logit_rows, *config.max_batch_size);
  options.config_overrides = config_overrides(config);
  options.progress = config.progress;
  options.kv_dtype = kv_dtype(config, kernels);
  return options;
}

/// All but the KV pool.
EngineConfig engine_config(const PipelineConfig& config, const Kernels& kernels, DType dtype) {
  EngineConfig engine;
  engine.session_len = *config.session_len;
  engine.max_batch_size = *config.max_batch_size;
  engine.block_len = *config.cache_block_seq_len;
  engine.max_prefill_token_num = most_prompt_tokens(config, kernels);
  engine.num_tokens_per_iter = *config.num_tokens_per_iter;
  engine.max_prefill_iters = *config.max_prefill_iters;
  engine.enable_prefix_caching = *config.enable_prefix_caching;
  engine.kv_dtype = dtype;
  if (config.speculative) engine.speculative = speculative_config(*config.speculative);
  return engine;
}

/// A share of what is left when everything else has its memory. Returns what is known of the pool then.
KvPoolReport choose_kv_pool(const PipelineConfig& config, const Runtime& runtime, EngineConfig& engine) {
  constexpr double kShareOfGpu = 0.8;
  const Kernels& kernels = *runtime.kernels;
  size_t taken_later = warm_up(*runtime.model, kernels, engine);
  if (runtime.draft_model != nullptr) taken_later += warm_up(*runtime.draft_model, kernels, engine);
  const size_t available = runtime.model->cache_memory(kernels);
  const double by_default = kernels.has_own_memory() ? kShareOfGpu : 0;
  const KvPoolReport report = {.free_bytes = available - std::min(available, taken_later),
                               .cache_max_entry_count = config.cache_max_entry_count.value_or(by_default)};
  set_kv_pool(report.cache_max_entry_count, report.free_bytes, engine);
  return report;
}

std::string draft_path(const PipelineConfig& config) {
  const SpeculativeOptions& options = *config.speculative;
  if (!options.local_path.empty() || !config.hub)
    return options.local_path.empty() ? options.model : options.local_path;
  return fetch_model({options.model, "", config.download_dir}, *config.hub, config.hub_hooks);
}

/// nullptr without speculative decoding by a draft model.
std::unique_ptr<Model> load_draft_model(const PipelineConfig& config, const Tokenizer* tokenizer,
                                        const Kernels& kernels) {
  if (!config.speculative || config.speculative->model.empty()) return nullptr;
  const std::string path = draft_path(config);
  check_same_vocabulary(tokenizer, load_tokenizer(path).get(), path);
  LoadOptions options = load_options(config, kernels);
  options.config_overrides = {};
  options.progress = {};
  return load_model(*open_checkpoint(path), kernels, options);
}

/// What the model will take at most; a KV pool is touched as it is used.
void log_memory(const PipelineConfig& config, const Runtime& runtime, KvPoolReport pool) {
  constexpr int kMiB = 20;
  const Model& model = *runtime.model;
  const EngineConfig& engine = runtime.engine->config();
  const BlockGroups groups(engine.block_len, model.kv_groups());
  pool.num_blocks = engine.num_blocks;
  pool.block_len = engine.block_len;
  pool.block_bytes = model.kv_layout(engine.kv_dtype, engine.block_len).block_bytes();
  pool.num_groups = static_cast<int64_t>(groups.size());
  pool.session_len = engine.session_len;
  pool.session_blocks = groups.least_for(engine.session_len);
  pool.max_batch_size = engine.max_batch_size;
  const int64_t num_pools = 1 + static_cast<int64_t>(runtime.other_kernels.size());
  LMD_LOG(kInfo, "loaded ", config.model_path, " on ", runtime.kernels->name(), ": ",
          model.weight_bytes() >> kMiB, " MiB of weights, ", model.buffer_bytes() >> kMiB,
          " MiB of buffers, up to ", (num_pools * pool.num_blocks * pool.block_bytes) >> kMiB,
          " MiB of KV cache (blocks of ", engine.block_len, " tokens in ", kv_name(engine.kv_dtype),
          "), session_len ", engine.session_len);
  LMD_LOG(kInfo, to_string(pool));
}

void make_back_ends(const PipelineConfig& config, const Checkpoint& checkpoint, Runtime& runtime) {
  if (config.tp == 1) {
    runtime.kernels = make_kernels(config, checkpoint);
    return;
  }
  std::vector<std::unique_ptr<Kernels>> ranks = make_rank_kernels(config, checkpoint);
  runtime.kernels = std::move(ranks[0]);
  ranks.erase(ranks.begin());
  runtime.other_kernels = std::move(ranks);
}

/// By the runtime's back ends.
std::unique_ptr<Model> load_shared_model(const PipelineConfig& config, const Checkpoint& checkpoint,
                                         const Runtime& runtime) {
  const RankOptions group = {.nccl = config.communicator == "nccl",
                             .through_host = config.communicator == "host"};
  const LoadOptions options = load_options(config, *runtime.kernels);
  if (runtime.other_kernels.empty()) return load_model(checkpoint, *runtime.kernels, options);
  std::vector<const Kernels*> ranks = {runtime.kernels.get()};
  for (const auto& other : runtime.other_kernels) ranks.push_back(other.get());
  return load_model(checkpoint, ranks, make_cuda_rank_group(ranks, group), options);
}

/// Bytes that are free for a share of the model.
size_t free_memory(const Runtime& runtime) {
  size_t least = runtime.kernels->available_memory();
  for (const auto& other : runtime.other_kernels) least = std::min(least, other->available_memory());
  return least;
}

/// The same; for want of memory the error says what to change.
std::unique_ptr<Model> load_or_explain(const PipelineConfig& config, const Checkpoint& checkpoint,
                                       const Runtime& runtime) {
  const Kernels& kernels = *runtime.kernels;
  const size_t free_bytes = free_memory(runtime);
  try {
    return load_shared_model(config, checkpoint, runtime);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kResourceExhausted) throw;
    const bool on_device = kernels.has_own_memory();
    const LoadMemory memory = {
        .weight_bytes =
            weight_bytes(checkpoint, on_device ? std::optional(kernels.activation_dtype()) : std::nullopt),
        .free_bytes = free_bytes,
        .num_sharing = config.tp,
        .may_share = on_device,
        .max_prefill_token_num = most_prompt_tokens(config, kernels),
        .max_batch_size = *config.max_batch_size};
    throw Error(error.code(),
                cat("load ", config.model_path,
                    ": its weights and the buffers for max_prefill_token_num and max_batch_size do not fit: ",
                    error.what(), "; ", want_of_memory(memory)));
  }
}

std::shared_ptr<Runtime> load_runtime(const PipelineConfig& config, const Checkpoint& checkpoint,
                                      const Tokenizer* tokenizer) {
  auto runtime = std::make_shared<Runtime>();
  make_back_ends(config, checkpoint, *runtime);
  const DType dtype = kv_dtype(config, *runtime->kernels);  // what cannot be had is refused before loading
  runtime->draft_model = load_draft_model(config, tokenizer, *runtime->kernels);
  runtime->model = load_or_explain(config, checkpoint, *runtime);
  EngineConfig engine = engine_config(config, *runtime->kernels, dtype);
  const KvPoolReport pool = choose_kv_pool(config, *runtime, engine);
  runtime->engine =
      std::make_unique<Engine>(*runtime->model, *runtime->kernels, engine, runtime->draft_model.get());
  log_memory(config, *runtime, pool);
  return runtime;
}

}  // namespace

std::string tokenizer_path(const std::string& model_path) {
  const std::filesystem::path path(model_path);
  if (path.extension() == ".gguf" || !std::filesystem::is_regular_file(path)) return model_path;
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

LoadedModel load_pipeline_model(const PipelineConfig& config) {
  check_config(config);
  return load_pipeline_model(config, *open_checkpoint(local_path(config), {config.model_format}));
}

LoadedModel load_pipeline_model(const PipelineConfig& given, const Checkpoint& checkpoint) {
  check_config(given);
  const std::string& path = checkpoint.path();
  const PipelineConfig config = with_settings(given, checkpoint);
  LoadedModel loaded;
  ModelInfo& info = loaded.info;
  info.config = config;
  // The text side first: it is quick, and its errors should not come after minutes of loading weights.
  info.tokenizer = load_tokenizer(path);
  info.chat_template = load_chat_template(config, info.tokenizer.get());
  loaded.runtime = load_runtime(config, checkpoint, info.tokenizer.get());
  info.spec = loaded.runtime->model->spec();
  info.session_len = loaded.runtime->engine->session_len();
  info.eos_ids = collect_eos_ids(checkpoint.generation_config(), info.spec.eos_ids, info.tokenizer.get(),
                                 info.chat_template.get());
  return loaded;
}

}  // namespace lmdeploy
