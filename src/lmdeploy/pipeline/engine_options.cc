#include "lmdeploy/pipeline/engine_options.h"

#include <string_view>

#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/device.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {
namespace {

template <typename T>
void set_default(std::optional<T>& option, T value) {
  if (!option) option = value;
}

template <typename T>
void take(const ConfigReader& settings, std::string_view name, std::optional<T>& option) {
  if (!option && settings.has(name)) option = settings.get(name, T{});
}

// A template by name; the text of another one would go unnoticed.
void take_template(const ConfigReader& settings, PipelineConfig& config) {
  if (config.chat_template || !settings.has("chat_template")) return;
  const std::string name = settings.get("chat_template", "");
  if (!is_chat_template_name(name))
    throw Error(ErrorCode::kInvalidArgument, cat(settings.where(), ": there is no chat template ", name,
                                                 "; `lmdeploy list` has the names. Correct it there, or "
                                                 "choose a template when you load the model"));
  config.chat_template = ChatTemplateConfig{.model_name = name};
}

}  // namespace

PipelineConfig with_defaults(PipelineConfig config) {
  set_default<int64_t>(config.session_len, 0);
  set_default<int64_t>(config.max_batch_size, 128);
  set_default<int64_t>(config.cache_block_seq_len, 64);
  set_default(config.enable_prefix_caching, false);
  set_default(config.quant_policy, 0);
  set_default<double>(config.rope_scaling_factor, 0);
  set_default<int64_t>(config.max_prefill_token_num, 8192);
  set_default<int64_t>(config.num_tokens_per_iter, 0);
  set_default<int64_t>(config.max_prefill_iters, 1);
  return config;
}

PipelineConfig with_settings(PipelineConfig config, const Checkpoint& checkpoint) {
  const JsonObject& object = checkpoint.engine_settings();
  if (object.empty()) return with_defaults(std::move(config));
  const Json all(object);
  const ConfigReader settings(all, checkpoint.settings_path());
  take(settings, "session_len", config.session_len);
  take(settings, "max_batch_size", config.max_batch_size);
  take(settings, "cache_max_entry_count", config.cache_max_entry_count);
  take(settings, "cache_block_seq_len", config.cache_block_seq_len);
  take(settings, "enable_prefix_caching", config.enable_prefix_caching);
  take(settings, "quant_policy", config.quant_policy);
  take(settings, "rope_scaling_factor", config.rope_scaling_factor);
  take(settings, "use_logn_attn", config.use_logn_attn);
  take(settings, "max_prefill_token_num", config.max_prefill_token_num);
  take(settings, "num_tokens_per_iter", config.num_tokens_per_iter);
  take(settings, "max_prefill_iters", config.max_prefill_iters);
  take_template(settings, config);
  config = with_defaults(std::move(config));
  try {
    check_config(config);
  } catch (const Error& error) {
    throw Error(error.code(), cat(settings.where(), ": ", error.what()));
  }
  return config;
}

}  // namespace lmdeploy
