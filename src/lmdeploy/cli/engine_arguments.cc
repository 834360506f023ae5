#include "lmdeploy/cli/engine_arguments.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <limits>
#include <ostream>

#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/device.h"
#include "lmdeploy/pipeline/speculative.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr const char* kGroup = "Engine arguments";

void add_engine_flags(CLI::App& command, PipelineConfig& config) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group(kGroup);
  };
  add("--session-len", config.session_len,
      "Tokens of a conversation; 0, the default: as many as the model can")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt));
  add("--max-batch-size", config.max_batch_size, "Sequences that run at once")
      ->default_str("128")
      ->transform(integer_in(1, kMaxInt));
  add("--cache-max-entry-count", config.cache_max_entry_count,
      "Share of free memory for keys and values, or a number of blocks; by default what a full batch needs, "
      "at most a quarter");
  add("--rope-scaling-factor", config.rope_scaling_factor, "1 or more: dynamic NTK scaling with this factor")
      ->default_str("0");
  add("--dtype", config.dtype, "Element type of keys and values: auto, float16, bfloat16, float32")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16", "float32"}))
      ->capture_default_str();
  add("--model-format", config.model_format,
      "What the weights must be; by default whatever the checkpoint says")
      ->check(CLI::IsMember(
          {"hf", "gguf", "llama", "awq", "gptq", "compressed-tensors", "fp8", "mxfp4", "w8a8"}));
  add("--tp", config.tp, "GPUs that share the model")
      ->type_name("INT")
      ->transform(integer_in(1, kMaxInt))
      ->capture_default_str();
  add("--num-threads,--threads", config.num_threads, "CPU threads; 0, the default: all")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxThreads));
  add("--rounded-activations", config.rounded_activations,
      "On the CPU, multiply quantised weights in bytes, and bf16 in bf16 where that is faster: by default "
      "for quantised models and from 10^9 weights on, but with --dtype float32 never")
      ->type_name("BOOL")
      ->check(CLI::IsMember({"true", "false"}));
  command
      .add_flag("--deterministic", config.deterministic,
                "The same tokens whatever else runs, to the last bit: on the CPU always so, on a GPU slower")
      ->group(kGroup);
  command
      .add_flag("--enable-prefix-caching", config.enable_prefix_caching,
                "Share keys and values of equal beginnings")
      ->group(kGroup);
}

void add_speculative_flags(CLI::App& command, EngineArguments& arguments) {
  command
      .add_option("--speculative-algorithm", arguments.speculative.method,
                  "Guess tokens and check several in a step: prompt_lookup, or draft by a second model")
      ->group(kGroup);
  command
      .add_option("--speculative-draft-model", arguments.speculative.model,
                  "Of draft: a small model of the same vocabulary")
      ->type_name("PATH")
      ->group(kGroup);
  command
      .add_option("--speculative-num-draft-tokens", arguments.num_draft_tokens,
                  "Guesses in a step at most, 1 to 16")
      ->type_name("INT")
      ->transform(integer_in(1, SpeculativeConfig::kMostTokens))
      ->default_str("1")
      ->group(kGroup);
}

void apply_speculative(const EngineArguments& arguments, PipelineConfig& config) {
  SpeculativeOptions options = arguments.speculative;
  if (options.method.empty()) {
    if (options.model.empty() && !arguments.num_draft_tokens) return;
    throw Error(ErrorCode::kInvalidArgument,
                "--speculative-draft-model and --speculative-num-draft-tokens need --speculative-algorithm: "
                "prompt_lookup or draft");
  }
  options.num_speculative_tokens = arguments.num_draft_tokens.value_or(1);
  try {
    speculative_config(options);
  } catch (const Error& error) {
    throw Error(error.code(), cat("--speculative-algorithm ", options.method, ": ", error.what()));
  }
  config.speculative = options;
}

/// Template names have neither a slash nor an extension.
bool is_path(const std::string& value) {
  return value.find('/') != std::string::npos || std::filesystem::path(value).extension() == ".json";
}

}  // namespace

void EngineArguments::add_to(CLI::App& command, const std::vector<LimitedFlag>& limited_flags,
                             const char* default_log_level) {
  command.add_option("--revision", config.revision, "Branch, tag or commit of a model of the hub")
      ->default_str("main");
  command.add_option("--download-dir", config.download_dir,
                     "Cache for models of the hub instead of HF_HUB_CACHE");
  command.add_option("--chat-template", chat_template, "Template name (see `lmdeploy list`) or JSON file");
  command.add_option("--log-level", log_level, "CRITICAL, ERROR, WARNING, INFO or DEBUG")
      ->default_str(default_log_level);
  add_engine_flags(command, config);
  add_speculative_flags(command, *this);
  limited.add_to(command, limited_flags);
}

void EngineArguments::apply(const Console& console) {
  limited.check();
  apply_speculative(*this, config);
  if (const std::string device = limited.value("--device"); !device.empty()) config.device_type = device;
  config.communicator = limited.value("--communicator");
  check_devices(config);  // before a model is fetched
  if (const std::string policy = limited.value("--quant-policy"); !policy.empty())
    config.quant_policy = quant_policy_number(policy);
  if (limited.given("--trust-remote-code"))
    console.err << "note: --trust-remote-code has no effect: code of a checkpoint is never run" << std::endl;
}

ChatTemplateConfig named_chat_template(const std::string& name) {
  require_template_name(name);
  ChatTemplateConfig config;
  config.model_name = name;
  return config;
}

ChatTemplateConfig read_chat_template(const std::string& value) {
  if (value[0] == '{' || std::filesystem::exists(value)) return ChatTemplateConfig::from_json(value);
  if (is_path(value)) throw Error(ErrorCode::kNotFound, cat("--chat-template: there is no file ", value));
  return named_chat_template(value);
}

LogLevel chosen_log_level(const std::string& flag, const Environment& environment, const char* fallback) {
  const bool from_flag = !flag.empty();
  const std::string& name = from_flag ? flag : environment.log_level;
  try {
    return log_level_from_string(name.empty() ? fallback : name);
  } catch (const Error& error) {
    throw Error(error.code(), cat(from_flag ? "--log-level" : "TM_LOG_LEVEL", ": ", error.what()));
  }
}

}  // namespace lmdeploy
