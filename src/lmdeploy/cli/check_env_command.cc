// `lmdeploy check_env`: what is here, does it fit together, and what is to be done.
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>

#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/env_report.h"
#include "lmdeploy/hub/hub.h"

namespace lmdeploy {
namespace {

/// Of a model of the hub all but the weights are fetched.
ModelFacts model_facts(const std::string& model) {
  if (!is_hub_model(model)) return {model, check_model(model)};
  const ModelRequest request = {.model = model, .weights = false};
  return {model, check_model(fetch_model(request, read_hub_config()))};
}

struct CheckEnvFlags {
  std::string model, dump_file;
};

int run_check_env(const CommandContext& context, const CheckEnvFlags& flags) {
  EnvFacts facts = gather_facts(context.environment);
  if (!flags.model.empty()) facts.model = model_facts(flags.model);
  const Verdict verdict = judge(facts);
  const EnvReport report = make_report(facts, verdict);
  if (!flags.dump_file.empty()) write_report(report, flags.dump_file);
  context.console.out << report_text(report);
  check_written(context.console.out);
  return verdict.problem ? 1 : 0;
}

}  // namespace

void add_check_env_command(CLI::App& program, CommandContext& context) {
  CLI::App& command = *program.add_subcommand(
      "check_env", "What this machine and this build can do, and whether a model runs here");
  const auto flags = std::make_shared<CheckEnvFlags>();
  command
      .add_option(
          "model_path", flags->model,
          "A model to look at: folder, file, or a name of the hub; its weights are neither fetched nor read")
      ->type_name("MODEL");
  command.add_option("--dump-file", flags->dump_file, "Also write the report there: .json or .yml")
      ->type_name("FILE");
  command.callback(
      [&context, flags] { context.run = [&context, flags] { return run_check_env(context, *flags); }; });
}

}  // namespace lmdeploy
