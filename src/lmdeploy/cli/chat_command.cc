// `lmdeploy chat`: flags, the model, and the conversation.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/arguments.h"
#include "lmdeploy/cli/chat_loop.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/engine_arguments.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/line_reader.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/cli/progress_bar.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/hub/hub.h"
#include "lmdeploy/pipeline/speculative.h"
#include "lmdeploy/text/chat/catalogue.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxNewTokens = 4096;  // of one answer
constexpr const char* kHowToChat =
    "Two Enters send a message (with Code Llama a line !!). `end` starts a new conversation, `exit` leaves.\n"
    "Ctrl-C stops an answer, drops a message that is half typed, and otherwise leaves.";

struct ChatFlags {
  std::vector<std::string> model;  // PATH, or the old `torch PATH`, `turbomind PATH`
  EngineArguments engine;
  std::string meta_instruction, capability, model_name;
  bool show_prompt = false;
};

void add_text_flags(CLI::App& command, ChatFlags& flags) {
  command
      .add_option("model_path", flags.model,
                  "Model folder or .gguf file, or a model of the hub: org/name, org/name/file.gguf")
      ->required()
      ->expected(1, 2)
      ->type_name("PATH");
  command.add_option("--meta-instruction", flags.meta_instruction, "System prompt instead of the template's");
  command.add_option("--cap", flags.capability, "What the input is: a turn of a dialogue, or raw text")
      ->check(CLI::IsMember({"chat", "completion", "infilling", "python"}))
      ->default_str("chat");
  command.add_flag("--show-prompt", flags.show_prompt,
                   "Print each prompt, as the chat template writes it, and its token ids");
  command.add_option("--model-name", flags.model_name, "Old spelling of --chat-template NAME");
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

/// --chat-template: a file, JSON text, or a name; --model-name: a name.
std::optional<ChatTemplateConfig> chosen_template(const ChatFlags& flags) {
  if (!flags.engine.chat_template.empty()) return read_chat_template(flags.engine.chat_template);
  if (!flags.model_name.empty()) return named_chat_template(flags.model_name);
  return std::nullopt;
}

/// Infilling is a way in which catalogue templates render; without a name that of codellama, which has it.
void apply_capability(const ChatFlags& flags, PipelineConfig& config) {
  if (flags.capability != "infilling") return;
  if (!config.chat_template) config.chat_template = named_chat_template("codellama");
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

std::unique_ptr<Pipeline> load(PipelineConfig config, const Console& console) {
  ProgressBar bar(console.err, "Loading " + config.model_path, terminal_columns(STDERR_FILENO));
  config.progress = [&](int64_t done, int64_t total) { bar.update(done, total); };
  return std::make_unique<Pipeline>(config);
}

int run_chat(ChatFlags& flags, const CommandContext& context) {
  const Console& console = context.console;
  // Off, unless the user asks: a log line in the middle of an answer is in the way.
  set_log_level(chosen_log_level(flags.engine.log_level, context.environment, "ERROR"));
  flags.engine.apply(console);
  PipelineConfig config = flags.engine.config;
  config.model_path = model_path(flags, console);
  config.chat_template = chosen_template(flags);
  apply_capability(flags, config);

  locate_models(config, console);
  const std::unique_ptr<Pipeline> pipeline = load(config, console);
  Interrupts interrupts;
  const std::unique_ptr<LineReader> reader = make_line_reader(console.out, interrupts);
  // Of a workspace the template is known only now.
  ChatLoop(*pipeline, loop_options(flags, pipeline->config()), *reader, interrupts, console).run();
  if (config.speculative)
    console.err << speculative_report(pipeline->engine().stats().speculative) << std::endl;
  return 0;
}

}  // namespace

void add_chat_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand("chat", "Talk to a model in the terminal");
  command.footer(kHowToChat);
  const auto flags = std::make_shared<ChatFlags>();
  add_text_flags(command, *flags);
  flags->engine.add_to(command, chat_limited_flags(), "ERROR");
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_chat(*flags, context); }; });
}

}  // namespace lmdeploy
