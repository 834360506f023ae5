// What a sub-command is: flags added to the parser, and something to run afterwards.
#pragma once

#include <functional>

#include "lmdeploy/cli/console.h"
#include "lmdeploy/cli/environment.h"

namespace CLI {
class App;
}

namespace lmdeploy {

/// Shared by all commands. The one that the arguments select stores its work in `run`, which returns the exit
/// code.
struct CommandContext {
  Console console;
  Environment environment;
  std::function<int()> run;
};

void add_chat_command(CLI::App& program, CommandContext& context);
/// To the group `serve`.
void add_api_server_command(CLI::App& serve, CommandContext& context);
/// `serve`: the group that add_missing_commands() makes.
void add_proxy_command(CLI::App& serve, CommandContext& context);
void add_api_client_command(CLI::App& serve, CommandContext& context);
void add_gradio_command(CLI::App& serve, CommandContext& context);
void add_list_command(CLI::App& program, CommandContext& context);
void add_check_env_command(CLI::App& program, CommandContext& context);
void add_convert_command(CLI::App& program, CommandContext& context);
void add_bench_command(CLI::App& program, CommandContext& context);
void add_debug_command(CLI::App& program, CommandContext& context);
/// Commands of the tree that this version only knows by name.
void add_missing_commands(CLI::App& program, CommandContext& context);

}  // namespace lmdeploy
