// `lmdeploy convert`: a checkpoint to a workspace.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <limits>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/interrupts.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/cli/progress_bar.h"
#include "lmdeploy/cli/terminal_mode.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/quant/convert.h"

namespace lmdeploy {
namespace {

constexpr int kUnknownFormat = 255;  // the exit code of the original for it

struct ConvertFlags {
  ConvertRequest request;
  ModelRequest model;
  std::string chat_template, quant_path;
  bool trust_remote_code = false;
};

void add_flags(CLI::App& command, ConvertFlags& flags) {
  constexpr int64_t kMaxInt = std::numeric_limits<int>::max();
  ConvertRequest& request = flags.request;
  command
      .add_option("model_name", request.template_name,
                  "Name of the model's chat template (see `lmdeploy list`)")
      ->required()
      ->type_name("NAME");
  command
      .add_option("model_path", flags.model.model,
                  "Checkpoint folder or file, or a model of the hub: org/name")
      ->required()
      ->type_name("PATH");
  command.add_option("--model-format", request.model_format,
                     "What the weights must be: hf, llama, awq; by default whatever the checkpoint says");
  command.add_option("--tokenizer-path", request.tokenizer_path,
                     "tokenizer.model or a folder, when it is not beside the weights");
  command.add_option("--dst-path", request.dst_path, "Folder to write; an older workspace there is deleted")
      ->capture_default_str();
  command.add_option("--tp", request.tp, "Ranks to split the weights over, a power of two")
      ->type_name("INT")
      ->transform(integer_in(1, kMaxInt))
      ->capture_default_str();
  command.add_option("--group-size", request.group_size, "Group size of AWQ weights")
      ->type_name("INT")
      ->transform(integer_in(0, kMaxInt))
      ->capture_default_str();
  command.add_option("--dtype", request.dtype, "Element type of converted weights: auto, float16, bfloat16")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16"}))
      ->capture_default_str();
  command.add_option("--chat-template", flags.chat_template, "Template name; wins over MODEL_NAME");
  command.add_option("--revision", flags.model.revision, "Branch, tag or commit of a model of the hub")
      ->default_str("main");
  command.add_option("--download-dir", flags.model.download_dir,
                     "Cache for models of the hub instead of HF_HUB_CACHE");
  command.add_option("--quant-path", flags.quant_path,
                     "Not supported: give the quantised checkpoint as PATH");
  command.add_flag("--trust-remote-code", flags.trust_remote_code,
                   "Accepted for old scripts: code of a checkpoint is never run");
}

ConvertResult convert(ConvertRequest request, const Console& console) {
  ProgressBar bar(console.err, "Converting " + request.model_path, terminal_columns(STDERR_FILENO));
  Interrupts interrupts;
  request.progress = [&](int64_t done, int64_t total) {
    if (interrupts.take()) throw Error(ErrorCode::kClosed, "the conversion was stopped; nothing was written");
    bar.update(done, total);
  };
  return convert_model(request);
}

int run_convert(const ConvertFlags& flags, const Console& console) {
  ConvertRequest request = flags.request;
  const std::string& format = request.model_format;
  if (!format.empty() && format != "hf" && format != "llama" && format != "awq") {
    console.err << "lmdeploy convert: the model format " << format
                << " is not supported; there are hf, llama, awq\n";
    return kUnknownFormat;
  }
  if (!flags.quant_path.empty())
    throw Error(ErrorCode::kUnsupported,
                "--quant-path is not supported; give the quantised checkpoint as MODEL_PATH");
  if (!flags.chat_template.empty()) request.template_name = flags.chat_template;
  require_template_name(request.template_name);
  if (flags.trust_remote_code)
    console.err << "note: --trust-remote-code has no effect: code of a checkpoint is never run" << std::endl;
  request.model_path = locate_model(flags.model, console);
  const ConvertResult result = convert(request, console);
  if (result.replaced)
    console.out << "The workspace that was at " << request.dst_path << " has been replaced.\n";
  if (!result.own_layout_reason.empty())
    console.out << "The weights keep the form of the checkpoint (weight_layout = 1): the layout of TurboMind "
                   "cannot hold "
                << result.own_layout_reason << ".\n";
  console.out << "Wrote " << request.dst_path << '\n';
  check_written(console.out);
  return 0;
}

}  // namespace

void add_convert_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand("convert", "Convert a model to the TurboMind layout");
  const auto flags = std::make_shared<ConvertFlags>();
  add_flags(command, *flags);
  command.callback([&context, flags] {
    context.run = [&context, flags] { return run_convert(*flags, context.console); };
  });
}

}  // namespace lmdeploy
