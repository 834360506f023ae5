// `lmdeploy debug compare`: what each layer computes, side by side with a judge.
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "lmdeploy/bench/layer_trace.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/limited_flags.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/device.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {
namespace {

struct CompareFlags {
  std::string model, text, backend = "cpu", judge = "ref", with, dump, quant_policy = "0";
  std::vector<int> ids = {1, 2, 3, 5, 8, 13, 21, 34};
  double tolerance = 1e-3;
};

int run_compare(const Console& console, const CompareFlags& flags) {
  std::vector<int> ids = flags.ids;
  if (!flags.text.empty()) ids = Tokenizer::load(flags.model)->encode(flags.text);
  const std::optional<DType> kv_dtype = quantized_kv_dtype(quant_policy_number(flags.quant_policy));
  const LayerTrace trace = trace_layers(flags.model, flags.backend, ids, kv_dtype);
  if (!flags.dump.empty()) write_trace(flags.dump, trace);
  const LayerTrace judge =
      flags.with.empty() ? trace_layers(flags.model, flags.judge, ids, kv_dtype) : read_trace(flags.with);
  const bool equal = print_comparison(console.out, judge, trace, flags.tolerance);
  check_written(console.out);
  return equal ? 0 : 1;
}

}  // namespace

void add_debug_command(CLI::App& program, CommandContext& context) {
  CLI::App& group = *program.add_subcommand("debug", "Tools for those who add models or back ends");
  CLI::App& command = *group.add_subcommand(
      "compare", "Each layer's output on two back ends, or beside a dump from elsewhere");
  auto flags = std::make_shared<CompareFlags>();
  command.add_option("model_path", flags->model, "Model folder or .gguf file")->required()->type_name("PATH");
  command.add_option("--ids", flags->ids, "Token ids, separated by commas")
      ->delimiter(',')
      ->type_name("ID,...");
  command.add_option("--text", flags->text, "Text instead of ids")->excludes("--ids");
  command.add_option("--backend", flags->backend, "What is judged")
      ->check(CLI::IsMember({"cpu", "ref"}))
      ->capture_default_str();
  command.add_option("--judge", flags->judge, "The judge")
      ->check(CLI::IsMember({"ref", "cpu"}))
      ->capture_default_str();
  command
      .add_option("--with", flags->with,
                  "A judge from elsewhere: safetensors with \"embedding\", \"layers.0.attention\", "
                  "\"layers.0.mlp\", \"layers.0\", ..., \"logits\", or some of them")
      ->type_name("FILE");
  command
      .add_option("--quant-policy", flags->quant_policy,
                  "Bits of keys and values, of the judge's too: 8, 4, or 0 for none lost")
      ->check(CLI::IsMember({"0", "4", "8", "none", "int4", "int8"}))
      ->capture_default_str();
  command.add_option("--dump", flags->dump, "Write the judged tensors to a file of that form")
      ->type_name("FILE");
  command
      .add_option("--tolerance", flags->tolerance,
                  "Largest difference, as a share of the tensor's largest value")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command.callback([flags, &context] {
    context.run = [flags, &context] { return run_compare(context.console, *flags); };
  });
}

}  // namespace lmdeploy
