#include "lmdeploy/cli/program.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <ostream>

#include "lmdeploy/cli/arguments.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/list_flag.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

CommandNames names_of(const CLI::App& app) {
  CommandNames names;
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& flags = option->get_lnames();
    names.flags.insert(names.flags.end(), flags.begin(), flags.end());
  }
  for (const CLI::App* command : app.get_subcommands({}))
    names.commands[command->get_name()] = names_of(*command);
  return names;
}

/// The innermost command that was selected.
const CLI::App& selected(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : selected(*commands.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : full_name(*app.get_parent()) + " " + app.get_name();
}

/// Messages that list several problems have several lines.
std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

void parse(CLI::App& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> normalized = normalize_arguments(arguments, names_of(program));
  std::reverse(normalized.begin(), normalized.end());  // CLI11 takes them from the back
  program.parse(std::move(normalized));
}

void print_help(const CLI::App& app, std::ostream& out) {
  out << app.help(app.get_parent() == nullptr ? "" : full_name(*app.get_parent()));
  check_written(out);
}

int usage_error(const CLI::App& program, const std::string& reason, std::ostream& err) {
  const std::string name = full_name(selected(program));
  err << name << ": error: " << reason << "\nRun `" << name << " --help` for what it takes.\n";
  return 2;
}

void set_up_log(const LogOptions& options) {
  try {
    configure_log(options);
  } catch (const Error& error) {
    throw Error(error.code(), cat("LMDEPLOY_LOG_FILE: ", error.what()));
  }
}

int run_selected(const CLI::App& program, const CommandContext& context) {
  set_up_log(context.environment.log);
  if (context.run) return context.run();
  print_help(selected(program), context.console.out);
  return 0;
}

int parse_and_run(CLI::App& program, const std::vector<std::string>& arguments, CommandContext& context) {
  const Console& console = context.console;
  try {
    parse(program, arguments);
    return run_selected(program, context);
  } catch (const CLI::CallForHelp&) {
    print_help(selected(program), console.out);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    console.out << version.what() << '\n';
    check_written(console.out);
    return 0;
  } catch (const CLI::RequiredError& error) {
    return usage_error(program, error.what() + taken_by_list_flag(selected(program)), console.err);
  } catch (const CLI::ParseError& error) {
    return usage_error(program, error.what(), console.err);
  } catch (const UsageError& error) {
    return usage_error(program, error.what(), console.err);
  }
}

}  // namespace

int run_program(const std::vector<std::string>& arguments, std::ostream& out, std::ostream& err) {
  try {
    CommandContext context{{out, err}, read_environment(), {}};
    CLI::App program("Runs large language models.", "lmdeploy");
    program.set_version_flag("-v,--version", LMDEPLOY_VERSION, "Print the version");
    program.get_formatter()->column_width(40);
    add_chat_command(program, context);
    add_missing_commands(program, context);
    add_api_server_command(*program.get_subcommand("serve"), context);
    add_proxy_command(*program.get_subcommand("serve"), context);
    add_api_client_command(*program.get_subcommand("serve"), context);
    add_gradio_command(*program.get_subcommand("serve"), context);
    add_convert_command(program, context);
    add_list_command(program, context);
    add_check_env_command(program, context);
    add_bench_command(program, context);
    add_debug_command(program, context);
    return parse_and_run(program, arguments, context);
  } catch (const std::exception& error) {
    err << "lmdeploy: error: " << one_line(describe(error)) << std::endl;
    return 1;
  }
}

}  // namespace lmdeploy
