#include "lmdeploy/cli/limited_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "lmdeploy/cli/integer_range.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

// The help text's groups, as LMDeploy has them.
constexpr const char* kGeneral = "Options";
constexpr const char* kEngine = "Engine arguments";

using IntLimits = std::numeric_limits<int>;

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

const std::vector<LimitedFlag>& chat_limited_flags() {
  static const std::vector<LimitedFlag> flags = {
      {"--backend",
       "TEXT",
       kGeneral,
       "Accepted for old scripts: there is one engine",
       {"pytorch", "turbomind"},
       {"pytorch", "turbomind"},
       ""},
      {"--trust-remote-code",
       "",
       kGeneral,
       "Accepted for old scripts: code of a checkpoint is never run",
       {},
       {"true"},
       ""},
      {"--adapters",
       "TEXT ...",
       kEngine,
       "LoRA adapters",
       {},
       {},
       "a checkpoint with the adapter merged into its weights"},
      {"--cp", "INT", kEngine, "GPUs that share a context (1)", {}, {"1"}, "--cp 1"},
      {"--quant-policy",
       "TEXT",
       kEngine,
       "Bits of keys and values: 8, 4, or 0 for the element type of --dtype (0)",
       {"0", "4", "8", "16", "17", "42", "none", "int4", "int8", "fp8", "fp8_e4m3", "fp8_e5m2",
        "turbo_quant"},
       {"0", "4", "8", "none", "int4", "int8"},
       "--quant-policy 8, 4 or 0"},
      {"--device",
       "TEXT",
       kEngine,
       "Device to run on (auto)",
       {"auto", "cpu", "cuda", "ascend", "maca", "camb"},
       {"auto", "cpu", "cuda"},
       "--device cpu"},
      {"--eager-mode", "", kEngine, "No CUDA graphs; there are none on a CPU", {}, {"true"}, ""},
      {"--dllm-block-length",
       "INT",
       kEngine,
       "Block length of diffusion models",
       {},
       {},
       "a causal language model"},
      {"--communicator",
       "TEXT",
       kEngine,
       "How GPUs add up: in each other's memory (cuda-ipc, or native), long sums by NCCL, or in host memory "
       "(cuda-ipc)",
       {"nccl", "native", "cuda-ipc", "host"},
       {"nccl", "native", "cuda-ipc", "host"},
       ""},
      {"--async", "INT", kEngine, "Plan the next step while one runs (on GPUs)", {"0", "1"}, {"0", "1"}, ""},
      {"--prefix-cache-state-budget",
       "INT",
       kEngine,
       "Cached states of recurrent models (0)",
       {},
       {"0"},
       "0"},
      {"--prefix-cache-decode-state-interval", "INT", kEngine, "Tokens between them (0)", {}, {"0"}, "0"},
      {"--language-model-only", "", kEngine, "Leave out a model's vision part", {}, {"true"}, ""},
  };
  return flags;
}

const std::vector<LimitedFlag>& server_limited_flags() {
  static const std::vector<LimitedFlag> flags = [] {
    std::vector<LimitedFlag> all = chat_limited_flags();
    const std::vector<LimitedFlag> more = {
        {"--meta-instruction",
         "TEXT",
         kGeneral,
         "Accepted for old scripts: clients send their own",
         {},
         {},
         "a system message in the request"},
        {"--cap",
         "TEXT",
         kGeneral,
         "Accepted for old scripts",
         {"chat", "completion", "infilling", "python"},
         {"chat", "completion", "infilling", "python"},
         ""},
        {"--generation-config",
         "TEXT",
         kGeneral,
         "Where default sampling values come from (lmdeploy)",
         {},
         {"lmdeploy"},
         "--generation-config lmdeploy"},
        {"--logprobs-mode",
         "TEXT",
         kGeneral,
         "Log probabilities are always of the model's own logits",
         {"raw_logits", "raw_logprobs"},
         {"raw_logprobs"},
         "--logprobs-mode raw_logprobs"},
        {"--allowed-media-domains",
         "TEXT ...",
         kGeneral,
         "Where pictures may come from",
         {},
         {},
         "a text model"},
        {"--vision-max-batch-size", "INT", kEngine, "Pictures at once (1)", {}, {"1"}, "1"},
        {"--disable-vision-encoder", "", kEngine, "Leave out a model's vision part", {}, {"true"}, ""},
        {"--enable-return-routed-experts",
         "",
         kEngine,
         "Tell clients which experts ran",
         {},
         {},
         "leave it out: nothing depends on it"},
        {"--distributed-executor-backend",
         "TEXT",
         kEngine,
         "There is one process",
         {"uni", "mp", "ray"},
         {"uni"},
         "uni"},
        {"--dllm-unmasking-strategy",
         "TEXT",
         kEngine,
         "Of diffusion models",
         {},
         {},
         "a causal language model"},
        {"--dllm-denoising-steps", "INT", kEngine, "Of diffusion models", {}, {}, "a causal language model"},
        {"--dllm-confidence-threshold",
         "TEXT",
         kEngine,
         "Of diffusion models",
         {},
         {},
         "a causal language model"},
        {"--dp",
         "INT",
         kEngine,
         "Copies of the model (1)",
         {},
         {"1"},
         "several servers behind `lmdeploy serve proxy`"},
        {"--ep", "INT", kEngine, "GPUs that share the experts (1)", {}, {"1"}, "--ep 1"},
        {"--enable-microbatch",
         "",
         kEngine,
         "Overlap of experts on several GPUs",
         {},
         {},
         "leave it out: nothing depends on it"},
        {"--enable-eplb",
         "",
         kEngine,
         "Balance of experts on several GPUs",
         {},
         {},
         "leave it out: nothing depends on it"},
        {"--role",
         "TEXT",
         kEngine,
         "Part of a split server (Hybrid)",
         {"Hybrid", "Prefill", "Decode"},
         {"Hybrid"},
         "--role Hybrid"},
        {"--migration-backend",
         "TEXT",
         kEngine,
         "Of a split server",
         {"DLSlime", "Mooncake"},
         {},
         "--role Hybrid"},
        {"--nnodes", "INT", kEngine, "Machines that share the model (1)", {}, {"1"}, "--nnodes 1"},
        {"--node-rank", "INT", kEngine, "Which of them this is (0)", {}, {"0"}, "--node-rank 0"},
        {"--dist-init-addr", "TEXT", kEngine, "Address of the first of them", {}, {}, "--nnodes 1"},
        {"--kernel-block-size",
         "INT",
         kEngine,
         "Tokens of a block inside kernels (-1)",
         {},
         {"-1"},
         "--cache-block-seq-len"},
        {"--cudagraph-capture-batch-sizes",
         "INT ...",
         kEngine,
         "Graphs are captured as batches come",
         {},
         {},
         "leave it out: nothing depends on it"},
    };
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return flags;
}

int quant_policy_number(const std::string& value) {
  return value == "8" || value == "int8" ? 8 : value == "4" || value == "int4" ? 4 : 0;
}

void LimitedFlags::add_to(CLI::App& command, const std::vector<LimitedFlag>& flags) {
  for (const LimitedFlag& flag : flags) {
    Given& given = given_.emplace_back(Given{&flag, {}});
    if (flag.type.empty()) {
      command.add_flag(flag.name, given.on, flag.help)->group(flag.group);
      continue;
    }
    CLI::Option* option = command.add_option(flag.name, given.values, flag.help)->group(flag.group);
    const bool is_list = flag.type.find("...") != std::string::npos;
    if (is_list) {
      option->type_name("TEXT");
    } else {
      option->type_name(flag.type)->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    if (flag.type == "INT") option->transform(integer_in(IntLimits::min(), IntLimits::max()));
    if (!flag.choices.empty()) option->check(CLI::IsMember(flag.choices));
  }
}

void LimitedFlags::check() const {
  for (const Given& given : given_) {
    if (given.on && !contains(given.flag->honoured, "true"))
      throw Error(ErrorCode::kUnsupported,
                  cat("not supported yet: ", given.flag->name, "; ", given.flag->instead));
    for (const std::string& value : given.values)
      if (!contains(given.flag->honoured, value))
        throw Error(ErrorCode::kUnsupported,
                    cat("not supported yet: ", given.flag->name, " ", value, "; use ", given.flag->instead));
  }
}

std::string LimitedFlags::value(const std::string& name) const {
  for (const Given& given : given_)
    if (given.flag->name == name && !given.values.empty()) return given.values.back();
  return "";
}

bool LimitedFlags::given(const std::string& name) const {
  return std::any_of(given_.begin(), given_.end(),
                     [&](const Given& given) { return given.flag->name == name && given.on; });
}

}  // namespace lmdeploy
