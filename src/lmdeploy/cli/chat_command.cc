// `lmdeploy chat`: flags, the model, and the conversation.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/arguments.h"
#include "lmdeploy/cli/chat_loop.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/limited_flags.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/cli/progress_bar.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/text/chat/catalogue.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxNewTokens = 4096;  // of one answer
constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr const char* kHowToChat =
    "Two Enters send a message (with Code Llama a line !!). `end` starts a new conversation, `exit` leaves.\n"
    "Ctrl-C stops an answer, drops a message that is half typed, and otherwise leaves.";

struct ChatFlags {
  std::vector<std::string> model;  // PATH, or the old `torch PATH`, `turbomind PATH`
  PipelineConfig config;
  std::string meta_instruction, capability, chat_template, model_name, log_level;
  bool show_prompt = false;
  LimitedFlags limited;
};

void add_text_flags(CLI::App& command, ChatFlags& flags) {
  command
      .add_option("model_path", flags.model,
                  "Model folder or .gguf file, or a model of the hub: org/name, org/name/file.gguf")
      ->required()
      ->expected(1, 2)
      ->type_name("PATH");
  command.add_option("--revision", flags.config.revision, "Branch, tag or commit of a model of the hub")
      ->default_str("main");
  command.add_option("--download-dir", flags.config.download_dir,
                     "Cache for models of the hub instead of HF_HUB_CACHE");
  command.add_option("--chat-template", flags.chat_template,
                     "Template name (see `lmdeploy list`) or JSON file");
  command.add_option("--meta-instruction", flags.meta_instruction, "System prompt instead of the template's");
  command.add_option("--cap", flags.capability, "What the input is: a turn of a dialogue, or raw text")
      ->check(CLI::IsMember({"chat", "completion", "infilling", "python"}))
      ->default_str("chat");
  command.add_flag("--show-prompt", flags.show_prompt,
                   "Print each prompt, as the chat template writes it, and its token ids");
  command.add_option("--model-name", flags.model_name, "Old spelling of --chat-template NAME");
  command.add_option("--log-level", flags.log_level, "CRITICAL, ERROR, WARNING, INFO or DEBUG")
      ->default_str("ERROR");
}

void add_engine_flags(CLI::App& command, PipelineConfig& config) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    return command.add_option(name, value, help)->group("Engine arguments");
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
  add("--num-threads", config.num_threads, "CPU threads; 0, the default: all")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt));
  add("--int8-activations", config.int8_activations,
      "On the CPU, products with quantised weights in bytes: by default for 10^9 weights or more")
      ->type_name("BOOL")
      ->check(CLI::IsMember({"true", "false"}));
  command
      .add_flag("--enable-prefix-caching", config.enable_prefix_caching,
                "Share keys and values of equal beginnings")
      ->group("Engine arguments");
}

/// The path, after the old backend word if there is one.
std::string model_path(const ChatFlags& flags, const Console& console) {
  if (flags.model.size() == 1) return flags.model[0];
  const std::string& backend = flags.model[0];
  if (backend != "torch" && backend != "pytorch" && backend != "turbomind")
    throw UsageError(cat("unexpected argument ", flags.model[1]));
  console.err << "warning: `lmdeploy chat " << backend << " PATH` is the old spelling of `lmdeploy chat PATH`"
              << std::endl;
  return flags.model[1];
}

ChatTemplateConfig named_template(const std::string& name) {
  require_template_name(name);
  ChatTemplateConfig config;
  config.model_name = name;
  return config;
}

/// Template names have neither a slash nor an extension.
bool is_path(const std::string& value) {
  return value.find('/') != std::string::npos || std::filesystem::path(value).extension() == ".json";
}

/// --chat-template: a file, JSON text, or a name; --model-name: a name.
std::optional<ChatTemplateConfig> chosen_template(const ChatFlags& flags) {
  const std::string& value = flags.chat_template;
  if (value.empty()) {
    if (flags.model_name.empty()) return std::nullopt;
    return named_template(flags.model_name);
  }
  if (value[0] == '{' || std::filesystem::exists(value)) return ChatTemplateConfig::from_json(value);
  if (is_path(value)) throw Error(ErrorCode::kNotFound, cat("--chat-template: there is no file ", value));
  return named_template(value);
}

/// Infilling is a way in which catalogue templates render; without a name that of codellama, which has it.
void apply_capability(const ChatFlags& flags, PipelineConfig& config) {
  if (flags.capability != "infilling") return;
  if (!config.chat_template) config.chat_template = named_template("codellama");
  config.chat_template->capability = flags.capability;
}

/// Code has empty lines in it, so that Code Llama's input ends with a line of its own.
std::string end_mark(const PipelineConfig& config) {
  const std::string_view* by_path = match_model_path(config.model_path);
  const bool is_code_llama = config.chat_template ? config.chat_template->model_name == "codellama"
                                                  : by_path != nullptr && *by_path == "codellama";
  return is_code_llama ? "!!" : "";
}

ChatLoopOptions loop_options(const ChatFlags& flags, const PipelineConfig& config) {
  ChatLoopOptions options;
  options.gen_config.do_sample = true;
  options.gen_config.max_new_tokens = kMaxNewTokens;
  options.system = flags.meta_instruction;
  const bool is_raw = flags.capability == "completion" || flags.capability == "python";
  options.independent_turns = is_raw || flags.capability == "infilling";
  options.apply_template = !is_raw;
  options.show_prompt = flags.show_prompt;
  options.end_mark = end_mark(config);
  return options;
}

/// Off, unless the user asks: a log line in the middle of an answer is in the way.
LogLevel log_level(const ChatFlags& flags, const Environment& environment) {
  const bool from_flag = !flags.log_level.empty();
  const std::string& name = from_flag ? flags.log_level : environment.log_level;
  try {
    return log_level_from_string(name.empty() ? "ERROR" : name);
  } catch (const Error& error) {
    throw Error(error.code(), cat(from_flag ? "--log-level" : "TM_LOG_LEVEL", ": ", error.what()));
  }
}

std::unique_ptr<Pipeline> load(PipelineConfig config, const Console& console) {
  ProgressBar bar(console.err, "Loading " + config.model_path, terminal_columns(STDERR_FILENO));
  config.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  return std::make_unique<Pipeline>(config);
}

int run_chat(const ChatFlags& flags, const CommandContext& context) {
  const Console& console = context.console;
  set_log_level(log_level(flags, context.environment));
  flags.limited.check();
  PipelineConfig config = flags.config;
  config.model_path = model_path(flags, console);
  if (const std::string policy = flags.limited.value("--quant-policy"); !policy.empty())
    config.quant_policy = quant_policy_number(policy);
  config.chat_template = chosen_template(flags);
  apply_capability(flags, config);
  if (flags.limited.given("--trust-remote-code"))
    console.err << "note: --trust-remote-code has no effect: code of a checkpoint is never run" << std::endl;

  config.local_path = locate_model({config.model_path, config.revision, config.download_dir}, console);
  const std::unique_ptr<Pipeline> pipeline = load(config, console);
  Interrupts interrupts;
  const std::unique_ptr<LineReader> reader = make_line_reader(console.out, interrupts);
  // Of a workspace the template is known only now.
  ChatLoop(*pipeline, loop_options(flags, pipeline->config()), *reader, interrupts, console).run();
  return 0;
}

}  // namespace

void add_chat_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand("chat", "Talk to a model in the terminal");
  command.footer(kHowToChat);
  const auto flags = std::make_shared<ChatFlags>();
  add_text_flags(command, *flags);
  add_engine_flags(command, flags->config);
  flags->limited.add_to(command, chat_limited_flags());
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_chat(*flags, context); }; });
}

}  // namespace lmdeploy
