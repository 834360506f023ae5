// gpu_bench BLOCK [OPTIONS]: what a GPU can do at most, and what models with random weights reach of it, all
// in one run on one card. docs/performance.md says how to run the blocks.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/bench/gpu_ceilings.h"
#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/model_blocks.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/kernels/cuda/device_probe.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMostTokens = 1 << 20;

using ModelBlock = std::function<void(const BenchDevice&, BenchReport&)>;

/// What the command line has chosen.
struct Command {
  bool deterministic = false;
  int tp = 1;
  RankOptions ranks;
  std::string json;
  ModelChoice models;
  DecodeOptions decode, idle = {.batches = {1, 16, 64, 256}, .contexts = {128}};
  PrefillOptions prefill;
  StaticOptions static_batches;
  TraceBlockOptions trace, arrivals = {.trace = {.num_requests = 500}, .rates = {4, 8, 16, 32}};
  ModelBlock block;  // empty: the ceilings
};

template <typename T>
CLI::Option* add_numbers(CLI::App& block, const std::string& name, std::vector<T>& values,
                         const std::string& help, T min, T max) {
  return block.add_option(name, values, help)
      ->delimiter(',')
      ->type_name("N,...")
      ->check(CLI::Range(min, max))
      ->capture_default_str();
}

CLI::Option* add_number(CLI::App& block, const std::string& name, auto& value, const std::string& help,
                        auto min, auto max) {
  return block.add_option(name, value, help)
      ->type_name("N")
      ->check(CLI::Range(min, max))
      ->capture_default_str();
}

void add_kinds(CLI::App& block, const std::string& name, std::vector<DType>& kinds, const std::string& help,
               const std::vector<std::string>& names) {
  const auto take = [&kinds](const std::vector<std::string>& given) {
    kinds.clear();
    for (const std::string& kind : given) kinds.push_back(*dtype_from_string(kind));
  };
  block.add_option_function<std::vector<std::string>>(name, take, help)
      ->delimiter(',')
      ->type_name("KIND,...")
      ->check(CLI::IsMember(names))
      ->default_str("bf16");
}

void add_models(CLI::App& block, ModelChoice& models) {
  block.add_option("--model", models.models, "Shapes of models")
      ->delimiter(',')
      ->type_name("NAME,...")
      ->check(CLI::IsMember(model_shape_names()))
      ->capture_default_str();
  add_kinds(block, "--weights", models.weights,
            "Kinds of their weights; u4_g128: of AWQ and GPTQ, i8_g64: of W8A8, f8_g64: of fp8",
            {"bf16", "u4_g128", "f8_g64", "i8_g64", "q4_0", "q4_1", "q8_0", "q4_k", "q5_k", "q6_k"});
  add_kinds(block, "--kv", models.kv_dtypes, "Kinds of keys and values; u8, u4: in 8 and 4 bits",
            {"bf16", "u8", "u4"});
}

void add_decode_sizes(CLI::App& block, DecodeOptions& options) {
  add_numbers<int64_t>(block, "--batch", options.batches, "Sequences in a step", 1, BenchModel::kMostBatch);
  add_numbers<int64_t>(block, "--context", options.contexts, "Tokens of each, the step's own included", 1,
                       kMostTokens);
}

void add_trace_options(CLI::App& block, TraceBlockOptions& options) {
  TraceOptions& trace = options.trace;
  add_number(block, "--requests", trace.num_requests, "Requests", int64_t{1}, int64_t{1000000});
  add_number(block, "--mean-prompt", trace.mean_prompt, "Tokens of a prompt, on average", 1.0, 1e5);
  add_number(block, "--mean-output", trace.mean_output, "Tokens of an output, on average", 1.0, 1e5);
  add_number(block, "--longest", trace.longest, "Tokens of a prompt or an output, at most", int64_t{1},
             kMostTokens);
  add_number(block, "--seed", trace.seed, "Of lengths and arrivals", uint64_t{0}, uint64_t{1} << 62);
  add_number(block, "--cache-gb", options.cache_gb, "KV cache, in 10^9 bytes", 0.001, 1e4);
  add_number(block, "--max-batch", options.max_batch, "Requests that run together, at most", int64_t{1},
             BenchModel::kMostBatch);
}

/// A block that runs models: `run` with the options that the command line has given by then.
template <typename Options>
CLI::App& add_block(CLI::App& program, Command& command, const char* name, const char* help,
                    void (*run)(const ModelChoice&, const Options&, const BenchDevice&, BenchReport&),
                    const Options& options) {
  CLI::App& block = *program.add_subcommand(name, help);
  block.fallthrough();
  add_models(block, command.models);
  block.callback([&command, run, &options] {
    command.block = [&command, run, &options](const BenchDevice& device, BenchReport& report) {
      run(command.models, options, device, report);
    };
  });
  return block;
}

void add_step_blocks(CLI::App& program, Command& c) {
  add_decode_sizes(
      add_block(program, c, "decode", "Steps of a token for each sequence", run_decode, c.decode), c.decode);
  CLI::App& prefill = add_block(program, c, "prefill", "Steps that read a prompt", run_prefill, c.prefill);
  add_numbers<int64_t>(prefill, "--tokens", c.prefill.tokens, "Of the prompt", 1, BenchModel::kPromptTokens);
  add_decode_sizes(add_block(program, c, "idle", "How long the device waits for the engine between two steps",
                             run_idle, c.idle),
                   c.idle);
}

void add_static_block(CLI::App& program, Command& c) {
  StaticOptions& options = c.static_batches;
  CLI::App& block =
      add_block(program, c, "static", "Equal requests together through the engine", run_static, options);
  add_numbers<int64_t>(block, "--batch", options.batches, "Requests", 1, BenchModel::kMostBatch);
  add_numbers<int64_t>(block, "--prompt", options.prompts, "Tokens of their prompts", 1, kMostTokens);
  add_numbers<int64_t>(block, "--output", options.outputs, "Tokens of their outputs, in pairs with --prompt",
                       1, kMostTokens);
}

void add_trace_blocks(CLI::App& program, Command& c) {
  add_trace_options(
      add_block(program, c, "trace", "Requests of ShareGPT's lengths, all at once", run_trace, c.trace),
      c.trace);
  CLI::App& arrivals =
      add_block(program, c, "arrivals", "The same, arriving one by one at random", run_trace, c.arrivals);
  add_trace_options(arrivals, c.arrivals);
  add_numbers(arrivals, "--rate", c.arrivals.rates, "Requests a second", 0.001, 1e6);
}

void add_options(CLI::App& program, Command& command) {
  program.add_flag("--deterministic", command.deterministic, "Products sum each row in one order");
  CLI::Option* tp = add_number(program, "--tp", command.tp, "GPUs that share each model", 1, 16);
  program.add_flag("--nccl", command.ranks.nccl, "They add up long sums by NCCL")->needs(tp);
  program.add_option("--json", command.json, "A line of JSON for each result")->type_name("FILE");
  program.require_subcommand(0, 1);
  program.add_subcommand("ceilings", "What the card can do: reads, copy, products, kernels of a graph")
      ->fallthrough();
  add_step_blocks(program, command);
  add_static_block(program, command);
  add_trace_blocks(program, command);
}

/// One for each GPU that shares a model.
std::vector<std::unique_ptr<Kernels>> make_ranks(const Command& command) {
  std::vector<std::unique_ptr<Kernels>> ranks;
  for (int device = 0; device < command.tp; ++device)
    ranks.push_back(make_cuda_kernels(std::make_shared<ThreadPool>(1), DType::kBF16,
                                      {.batch_invariant = command.deterministic, .device = device}));
  return ranks;
}

/// Of several cards, as the first one's were measured.
DeviceRates rates_of_all(DeviceRates rates, int count) {
  for (double* rate : {&rates.read_bytes_per_s, &rates.product_flops_per_s, &rates.attention_flops_per_s})
    *rate *= count;
  return rates;
}

void run(Command& command) {
  BenchReport report(std::cout, command.json);
  const std::vector<std::unique_ptr<Kernels>> ranks = make_ranks(command);
  const CudaDevice card = cuda_status().devices.front();
  report.note(cat(command.tp == 1 ? "" : cat(command.tp, " x "), card.name, ", ",
                  bytes_text(static_cast<double>(card.total_bytes))));
  const double seconds = seconds_of([&] {
    if (!command.block) return run_ceilings(report);
    GpuRates rates(report);
    BenchDevice device = {.ranks = {},
                          .meeting = command.ranks,
                          .wait = cuda::wait_for_device,
                          .free_bytes = [&] { return ranks[0]->available_memory(); },
                          .rates = [&](DType kind) { return rates_of_all(rates.of(kind), command.tp); }};
    for (const auto& rank : ranks) device.ranks.push_back(rank.get());
    try {
      command.block(device, report);
    } catch (const Error& error) {
      throw Error(error.code(), cat(report.current(), ": ", error.what()));
    }
    report.summarise();
  });
  report.note(cat("took ", three_digits(seconds), " s"));
}

/// The exit code.
int run_program(int argc, const char* const* argv) {
  CLI::App program("What a GPU can do at most, and what models with random weights reach of it.",
                   "gpu_bench");
  Command command;
  add_options(program, command);
  try {
    program.parse(argc, argv);
    if (command.static_batches.prompts.size() != command.static_batches.outputs.size())
      throw CLI::ValidationError(cat("--prompt has ", command.static_batches.prompts.size(),
                                     " numbers, --output ", command.static_batches.outputs.size(),
                                     ": they are pairs"));
  } catch (const CLI::CallForHelp& help) {
    return program.exit(help);
  } catch (const CLI::ParseError& error) {
    std::cerr << "gpu_bench: " << error.what() << "\nRun gpu_bench BLOCK --help for the options.\n";
    return 2;
  }
  if (program.get_subcommands().empty()) {
    std::cout << program.help();
    return 0;
  }
  run(command);
  return 0;
}

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) try {
  return lmdeploy::run_program(argc, argv);
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpu_bench: %s\n", error.what());
  return 1;
}
