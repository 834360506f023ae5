// `lmdeploy list`: the names of the built-in chat templates.
#include <CLI/CLI.hpp>
#include <ostream>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy {
namespace {

int run_list(const Console& console) {
  console.out
      << "The older chat template names like \"internlm2-7b\" and \"qwen-7b\" are deprecated. The supported "
         "chat template names are:\n";
  for (const std::string& name : chat_template_names())
    if (name != "base") console.out << name << '\n';
  check_written(console.out);
  return 0;
}

}  // namespace

void add_list_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand("list", "Names of the built-in chat templates");
  command.callback([&context] { context.run = [&context] { return run_list(context.console); }; });
}

}  // namespace lmdeploy
