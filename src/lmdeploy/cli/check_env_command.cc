// `lmdeploy check_env`: what is here, does it fit together, and what is to be done.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/env_report.h"

namespace lmdeploy {
namespace {

int run_check_env(const CommandContext& context, const std::string& dump_file) {
  const EnvFacts facts = gather_facts(context.environment);
  const Verdict verdict = judge(facts);
  const EnvReport report = make_report(facts, verdict);
  if (!dump_file.empty()) write_report(report, dump_file);
  context.console.out << report_text(report);
  check_written(context.console.out);
  return verdict.problem ? 1 : 0;
}

}  // namespace

void add_check_env_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand("check_env", "What this machine and this build can do");
  const auto dump_file = std::make_shared<std::string>();
  command.add_option("--dump-file", *dump_file, "Also write the report there: .json or .yml")
      ->type_name("FILE");
  command.callback([&context, dump_file] {
    context.run = [&context, dump_file] { return run_check_env(context, *dump_file); };
  });
}

}  // namespace lmdeploy
