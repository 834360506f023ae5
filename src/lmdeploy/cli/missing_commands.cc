// Commands of LMDeploy that this version does not have yet. They exist so that scripts get a reason, not a
// usage error.
#include <CLI/CLI.hpp>
#include <span>
#include <string>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

struct MissingCommand {
  const char* name;
  const char* help;
  const char* instead;
};

constexpr const char* kUseCheckpoint = "a checkpoint that is quantised already (GGUF Q4 to Q8)";

constexpr MissingCommand kServe[] = {
    {"triton_client", "Terminal client of a Triton server", "lmdeploy chat MODEL"},
};
constexpr MissingCommand kLite[] = {
    {"auto_awq", "4-bit weights by AWQ", kUseCheckpoint},
    {"auto_gptq", "4-bit weights by GPTQ", kUseCheckpoint},
    {"calibrate", "Statistics for quantisation", kUseCheckpoint},
    {"smooth_quant", "8-bit weights and activations", kUseCheckpoint},
    {"kv_qparams", "Scales of 8-bit keys and values",
     "--quant-policy 8 or 4: they need no scales made beforehand"},
};

void add_missing(CLI::App& parent, const std::string& path, const MissingCommand& missing,
                 CommandContext& context) {
  CLI::App& command =
      *parent.add_subcommand(missing.name, std::string(missing.help) + " (not supported yet)");
  command.prefix_command();  // takes any arguments
  command.callback([&context, name = path + missing.name, instead = missing.instead] {
    context.run = [name, instead]() -> int {
      throw Error(ErrorCode::kUnsupported, cat("not supported yet: lmdeploy ", name, "; use ", instead));
    };
  });
}

void add_group(CLI::App& program, const char* name, const char* help,
               std::span<const MissingCommand> commands, CommandContext& context) {
  CLI::App& group = *program.add_subcommand(name, help);
  for (const MissingCommand& missing : commands)
    add_missing(group, std::string(name) + " ", missing, context);
}

}  // namespace

void add_missing_commands(CLI::App& program, CommandContext& context) {
  add_group(program, "serve", "Serve a model over the network", kServe, context);
  add_group(program, "lite", "Quantise a model (not supported yet)", kLite, context);
}

}  // namespace lmdeploy
