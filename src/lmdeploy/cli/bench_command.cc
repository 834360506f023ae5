// `lmdeploy bench`: the speed of this machine, of single kernels and of whole models.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <memory>
#include <ostream>

#include "lmdeploy/bench/kernel_speed.h"
#include "lmdeploy/bench/machine_speed.h"
#include "lmdeploy/bench/model_speed.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/bench/speculative_speed.h"
#include "lmdeploy/cli/arguments.h"
#include "lmdeploy/cli/command.h"
#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/cli/model_arguments.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/thread_pool.h"
#include "lmdeploy/pipeline/device.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMaxTokens = 1 << 24, kMaxBatch = 65536;

CLI::Option* add_integer(CLI::App& command, const std::string& name, auto& value, const std::string& help,
                         int64_t min, int64_t max) {
  return command.add_option(name, value, help)
      ->type_name("INT")
      ->transform(integer_in(min, max))
      ->capture_default_str();
}

void add_threads(CLI::App& command, int& num_threads) {
  add_integer(command, "--threads", num_threads, "CPU threads; 0: all that this process may use", 0,
              kMaxThreads);
}

void add_memory(CLI::App& command, int64_t& memory_mib, const std::string& help) {
  add_integer(command, "--memory", memory_mib, "MiB of memory: " + help, 1, 1 << 20);
}

void add_machine_command(CLI::App& group, CommandContext& context) {
  CLI::App& command =
      *group.add_subcommand("machine", "Read bandwidth, multiply-adds and barriers, by number of threads");
  const auto options = std::make_shared<MachineSpeedOptions>();
  add_threads(command, options->num_threads);
  add_memory(command, options->memory_mib, "read with each page size; more than the caches hold");
  add_integer(command, "--rounds", options->rounds, "Samples of each figure", 1, 1000);
  command.callback([options, &context] {
    context.run = [options, &context] {
      measure_machine(*options, context.console.out);
      check_written(context.console.out);
      return 0;
    };
  });
}

void add_kernels_command(CLI::App& group, CommandContext& context) {
  CLI::App& command = *group.add_subcommand("kernels", "Each op as a share of this machine's limits");
  const auto options = std::make_shared<KernelSpeedOptions>();
  command
      .add_option("--filter", options->filter, "Only those whose name this regular expression is found in")
      ->type_name("REGEX");
  command.add_flag("--list", options->list, "Print the names and measure nothing");
  add_threads(command, options->num_threads);
  add_memory(command, options->memory_mib, "weights and inputs take turns on; more than the caches hold");
  add_integer(command, "--sample-ms", options->sample_ms, "Length of each of five samples", 1, 60000);
  command.callback([options, &context] {
    context.run = [options, &context] {
      measure_kernels(*options, context.console.out);
      check_written(context.console.out);
      return 0;
    };
  });
}

struct ModelFlags {
  ModelSpeedOptions options;
  ModelRequest model;
  std::string weights, json;
};

void add_source_flags(CLI::App& command, ModelFlags& flags) {
  CLI::Option* model = command.add_option("model_path", flags.model.model,
                                          "Model folder or .gguf file, or a model of the hub: org/name");
  model->type_name("PATH");
  command.add_option("--revision", flags.model.revision, "Branch, tag or commit of a model of the hub")
      ->default_str("main");
  command.add_option("--download-dir", flags.model.download_dir,
                     "Cache for models of the hub instead of HF_HUB_CACHE");
  CLI::Option* shape = command
                           .add_option("--shape", flags.options.shape,
                                       "Instead of a model: random weights in the shape of a known one")
                           ->check(CLI::IsMember(model_shape_names()))
                           ->excludes(model);
  command
      .add_option("--weights", flags.weights,
                  "Kind of the random weights; u4_g128: of AWQ and GPTQ, i8_g64: of W8A8, f8_g64: of fp8")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k",
                             "q6_k", "u4_g128", "u4_g32", "i8_g64", "f8_g64"}))
      ->default_str("bf16")
      ->needs(shape);
  command.add_option("--seed", flags.options.seed, "Of the random weights")
      ->type_name("INT")
      ->transform(integer_in(0, std::numeric_limits<int64_t>::max()))
      ->capture_default_str()
      ->needs(shape);
}

void add_measure_flags(CLI::App& command, ModelFlags& flags) {
  ModelSpeedOptions& options = flags.options;
  add_integer(command, "--prompt", options.prompt, "Tokens of the prompt; 0: no prefill", 0, kMaxTokens);
  add_integer(command, "--decode", options.decode, "Tokens that each sequence decodes; 0: none", 0,
              kMaxTokens);
  add_integer(command, "--depth", options.depth, "Tokens before those", 0, kMaxTokens);
  command.add_option("--batch", options.batches, "Sequences that decode together, separated by commas")
      ->delimiter(',')
      ->type_name("INT,...")
      ->transform(integer_in(1, kMaxBatch))
      ->capture_default_str();
  add_threads(command, options.num_threads);
  command
      .add_option("--dtype", options.dtype,
                  "As for chat: float32 keeps activations in f32 where auto rounds them")
      ->check(CLI::IsMember({"auto", "float16", "bfloat16", "float32"}))
      ->capture_default_str();
  command.add_option("--quant-policy", options.quant_policy, "Keys and values in 8 or 4 bits; 0: not")
      ->check(CLI::IsMember({"0", "4", "8"}))
      ->default_str("0");
  command.add_option("--rounded-activations", options.rounded_activations, "As for chat")
      ->type_name("BOOL")
      ->check(CLI::IsMember({"true", "false"}));
  add_integer(command, "--rounds", options.rounds, "Samples of each figure", 1, 1000);
  add_memory(command, options.memory_mib, "read to measure the limit; more than the caches hold");
  command.add_option("--json", flags.json, "Write all figures to this file too")->type_name("FILE");
}

void check_each_once(const char* flag, std::vector<int64_t> values) {
  std::ranges::sort(values);
  const auto twice = std::ranges::adjacent_find(values);
  if (twice != values.end()) throw UsageError(cat(flag, ": ", *twice, " stands there twice"));
}

int run_model(ModelFlags& flags, const Console& console) {
  ModelSpeedOptions& options = flags.options;
  if (flags.model.model.empty() == options.shape.empty())
    throw UsageError("give a model, or --shape for random weights");
  if (options.prompt == 0 && options.decode == 0)
    throw UsageError("nothing to measure: --prompt and --decode are both 0");
  check_each_once("--batch", options.batches);
  if (!flags.json.empty()) check_json_target(flags.json);
  if (!flags.weights.empty()) options.weights = *dtype_from_string(flags.weights);
  if (options.shape.empty()) options.model_path = locate_model(flags.model, console);
  const OtherLoad load;
  print_machine(console.out, options.num_threads > 0 ? options.num_threads : available_cpus());
  const ModelFigures figures = measure_model(
      options,
      {.loaded =
           [&](const ModelFigures& f) { console.out << model_head(f) << '\n'
                                                    << case_head() << std::endl; },
       .measured = [&](const ModelFigures& f,
                       const ModelCase& c) { console.out << case_line(f, c) << std::endl; }});
  print_other_load(console.out, load);
  check_written(console.out);
  if (!flags.json.empty()) write_json(flags.json, figures);
  return 0;
}

void add_model_command(CLI::App& group, CommandContext& context) {
  CLI::App& command = *group.add_subcommand(
      "model", "Prefill and decode of a model, the forward pass alone and the whole engine");
  const auto flags = std::make_shared<ModelFlags>();
  add_source_flags(command, *flags);
  add_measure_flags(command, *flags);
  command.callback(
      [flags, &context] { context.run = [flags, &context] { return run_model(*flags, context.console); }; });
}

struct SpeculativeFlags {
  SpeculativeSpeedOptions options;
  ModelRequest model;
};

int run_speculative(SpeculativeFlags& flags, const Console& console) {
  SpeculativeSpeedOptions& options = flags.options;
  options.speculative.method = options.speculative.model.empty() ? "prompt_lookup" : "draft";
  options.model_path = locate_model(flags.model, console);
  if (!options.speculative.model.empty())
    options.speculative.local_path = locate_model({options.speculative.model, "", ""}, console);
  const OtherLoad load;
  print_machine(console.out, options.num_threads > 0 ? options.num_threads : available_cpus());
  console.out << speculative_head() << std::endl;
  measure_speculative(options,
                      [&](const SpeculativeCase& c) { console.out << speculative_line(c) << std::endl; });
  print_other_load(console.out, load);
  check_written(console.out);
  return 0;
}

void add_speculative_command(CLI::App& group, CommandContext& context) {
  CLI::App& command = *group.add_subcommand(
      "speculative", "What guessed tokens gain, on texts that copy their prompt and on others");
  const auto flags = std::make_shared<SpeculativeFlags>();
  SpeculativeSpeedOptions& options = flags->options;
  command.add_option("model_path", flags->model.model, "Model folder or .gguf file, or a model of the hub")
      ->required()
      ->type_name("PATH");
  command
      .add_option("--speculative-draft-model", options.speculative.model,
                  "Guess with this model; by default by prompt lookup")
      ->type_name("PATH");
  add_integer(command, "--speculative-num-draft-tokens", options.speculative.num_speculative_tokens,
              "Guesses in a step at most", 1, SpeculativeConfig::kMostTokens);
  add_integer(command, "--decode", options.max_new_tokens, "Tokens of an answer at most", 2, kMaxTokens);
  add_integer(command, "--rounds", options.rounds, "Samples of each figure", 1, 1000);
  add_threads(command, options.num_threads);
  command.callback([flags, &context] {
    context.run = [flags, &context] { return run_speculative(*flags, context.console); };
  });
}

}  // namespace

void add_bench_command(CLI::App& program, CommandContext& context) {
  CLI::App& group =
      *program.add_subcommand("bench", "The speed of this machine, of kernels and of models (CPU)");
  add_machine_command(group, context);
  add_kernels_command(group, context);
  add_model_command(group, context);
  add_speculative_command(group, context);
}

}  // namespace lmdeploy
