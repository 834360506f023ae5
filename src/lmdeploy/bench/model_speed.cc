#include "lmdeploy/bench/model_speed.h"

#include <algorithm>
#include <array>

#include "lmdeploy/bench/engine_run.h"
#include "lmdeploy/bench/forward_run.h"
#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/models/kv_groups.h"
#include "lmdeploy/models/model_plan.h"

namespace lmdeploy {
namespace {

constexpr int64_t kMostStepTokens = 8192;  // the engine's default
constexpr int64_t kFirstPrompt = 8;        // tokens of the prompt that ends loading

// The engine needs a prompt of one token.
int64_t tokens_before(const ModelSpeedOptions& options) { return std::max<int64_t>(options.depth, 1); }

// As many as the largest case takes, so that the pool's size says what is in use.
int64_t pool_blocks(const ModelSpeedOptions& options, const Checkpoint& checkpoint) {
  const auto blocks = [](int64_t tokens) {
    return (tokens + ForwardRun::kBlockLen - 1) / ForwardRun::kBlockLen;
  };
  const int64_t groups =
      static_cast<int64_t>(group_kv_layers(plan_model(checkpoint).spec.layers).groups.size());
  const int64_t batch = *std::ranges::max_element(options.batches);
  return groups * std::max({blocks(options.prompt + 1), blocks(kFirstPrompt + 1),
                            batch * blocks(tokens_before(options) + options.decode + 1)});
}

PipelineConfig pipeline_config(const ModelSpeedOptions& options, const Checkpoint& checkpoint) {
  PipelineConfig config;
  config.model_path = checkpoint.path();
  config.dtype = options.dtype;
  config.rounded_activations = options.rounded_activations;
  config.quant_policy = options.quant_policy;
  config.device_type = "cpu";
  config.num_threads = options.num_threads;
  config.cache_block_seq_len = ForwardRun::kBlockLen;
  config.cache_max_entry_count = static_cast<double>(pool_blocks(options, checkpoint));
  config.max_batch_size = *std::ranges::max_element(options.batches);
  config.session_len = 1 + std::max({options.prompt, tokens_before(options) + options.decode, kFirstPrompt});
  config.max_prefill_token_num = std::clamp<int64_t>(options.prompt, 512, kMostStepTokens);
  config.enable_prefix_caching = false;
  return config;
}

std::vector<int> random_ids(int64_t count, int64_t vocab_size) {
  Rng rng(1);
  std::vector<int> ids;
  for (int64_t i = 0; i < count; ++i)
    ids.push_back(static_cast<int>(rng.below(static_cast<uint64_t>(vocab_size))));
  return ids;
}

// Tokens a second once all sequences have their first one.
double engine_decode_rate(const LoadedModel& loaded, int64_t batch, std::span<const int> prompt,
                          int64_t tokens) {
  EngineRun run(loaded, batch, prompt, tokens + 1);
  run.read_to_end();
  LMD_CHECK(run.tokens() == batch * (tokens + 1), run.tokens(), " tokens of ", batch, " requests");
  return run.decode_rate();
}

double engine_prefill_rate(const LoadedModel& loaded, std::span<const int> prompt) {
  const double seconds = seconds_of([&] { EngineRun(loaded, 1, prompt, 1).read_to_end(); });
  return static_cast<double>(prompt.size()) / seconds;
}

double forward_decode_rate(const LoadedModel& loaded, int64_t batch, std::span<const int> before,
                           std::span<const int> ids) {
  ForwardRun run(loaded, batch, static_cast<int64_t>(before.size() + ids.size()));
  for (int64_t s = 0; s < batch; ++s) run.prefill(static_cast<size_t>(s), before);
  const double seconds = seconds_of([&] {
    for (const int id : ids) run.decode(id);
  });
  return static_cast<double>(batch) * static_cast<double>(ids.size()) / seconds;
}

double forward_prefill_rate(const LoadedModel& loaded, std::span<const int> prompt) {
  const auto tokens = static_cast<int64_t>(prompt.size());
  ForwardRun run(loaded, 1, tokens);
  return static_cast<double>(tokens) / seconds_of([&] { run.prefill(0, prompt); });
}

void add(StepWork& sum, const StepWork& step) {
  sum.weight_bytes += step.weight_bytes;
  sum.kv_bytes += step.kv_bytes;
  sum.flops += step.flops;
}

StepWork decode_work(const LoadedModel& loaded, int64_t batch, int64_t before, int64_t tokens) {
  StepWork sum;
  for (int64_t t = 1; t <= tokens; ++t)
    add(sum, loaded.runtime->model->step_work({.num_sequences = batch, .kv_len = before + t},
                                              loaded.runtime->engine->config().kv_dtype));
  return sum;
}

StepWork prefill_work(const LoadedModel& loaded, int64_t tokens) {
  StepWork sum;
  const int64_t most = *loaded.info.config.max_prefill_token_num;
  for (int64_t done = 0; done < tokens; done += most) {
    const int64_t count = std::min(most, tokens - done);
    add(sum, loaded.runtime->model->step_work(
                 {.tokens = count, .kv_len = done + count, .logit_rows = done + count == tokens ? 1 : 0},
                 loaded.runtime->engine->config().kv_dtype));
  }
  return sum;
}

class ModelBench {
 public:
  ModelBench(const ModelSpeedOptions& options, const LoadedModel& loaded)
      : options_(options),
        loaded_(loaded),
        prompt_(random_ids(options.prompt, loaded.info.spec.vocab_size)),
        before_(random_ids(options.depth, loaded.info.spec.vocab_size)),
        decoded_(random_ids(options.decode, loaded.info.spec.vocab_size)) {}

  std::vector<ModelCase> cases() const {
    std::vector<ModelCase> cases;
    if (options_.prompt > 0)
      cases.push_back({.prefill = true,
                       .tokens = options_.prompt,
                       .forward = {},
                       .engine = {},
                       .work = prefill_work(loaded_, options_.prompt),
                       .limits = {}});
    if (options_.decode == 0) return cases;
    for (const int64_t batch : options_.batches)
      cases.push_back({.batch = batch,
                       .tokens = options_.decode,
                       .forward = {},
                       .engine = {},
                       .work = decode_work(loaded_, batch, options_.depth, options_.decode),
                       .limits = {}});
    return cases;
  }
  double engine_rate(const ModelCase& c) const {
    if (c.prefill) return engine_prefill_rate(loaded_, prompt_);
    // The engine needs a prompt.
    const std::span<const int> before = before_.empty() ? std::span(decoded_).first(1) : before_;
    return engine_decode_rate(loaded_, c.batch, before, options_.decode);
  }
  void measure(ModelCase& c, MachineProbe& probe) const {
    for (int round = 0; round < options_.rounds; ++round) {
      const MachineLimits before = probe.measure();
      c.forward.push_back(c.prefill ? forward_prefill_rate(loaded_, prompt_)
                                    : forward_decode_rate(loaded_, c.batch, before_, decoded_));
      c.limits.push_back(mean_of(before, probe.measure()));
      c.engine.push_back(engine_rate(c));
    }
  }

 private:
  const ModelSpeedOptions& options_;
  const LoadedModel& loaded_;
  const std::vector<int> prompt_, before_, decoded_;
};

// What most weights are multiplied in.
DotChain::Numbers main_numbers(const Checkpoint& checkpoint, bool rounded_activations) {
  std::array<int64_t, 3> elements{};  // by numbers
  for (const TensorInfo& tensor : checkpoint.tensors())
    elements[static_cast<size_t>(numbers_of(tensor.dtype, rounded_activations))] += tensor.shape.numel();
  return static_cast<DotChain::Numbers>(std::ranges::max_element(elements) - elements.begin());
}

/// The model, and how it was loaded.
class TimedModel {
 public:
  explicit TimedModel(const ModelSpeedOptions& options) {
    const LoadTimer::Load load = [&](const Checkpoint& checkpoint) {
      reset_peak_resident();
      resident_before_ = resident_bytes().now;
      loaded_ = load_pipeline_model(pipeline_config(options, checkpoint), checkpoint);
      numbers_ = main_numbers(checkpoint, loaded_.runtime->kernels->name().ends_with("-rounded"));
    };
    if (options.shape.empty()) {
      timer_.time_files(options.model_path, load);
    } else {
      timer_.time_random(*make_random_checkpoint(options.shape, options.weights, options.seed), load);
    }
    const std::vector<int> prompt = random_ids(kFirstPrompt, loaded_.info.spec.vocab_size);
    EngineRun(loaded_, 1, prompt, 1).read_to_end();
    timer_.stop();
  }
  const LoadedModel& loaded() const { return loaded_; }

  /// All but the cases and what is known after them.
  ModelFigures describe() const {
    const Runtime& runtime = *loaded_.runtime;
    ModelFigures figures;
    figures.name = loaded_.info.config.model_path;
    figures.architecture = loaded_.info.spec.architecture;
    figures.backend = runtime.kernels->name();
    figures.kv_dtype = runtime.engine->config().kv_dtype;
    figures.num_threads = runtime.kernels->threads().num_threads();
    figures.numbers = numbers_;
    figures.has_tokenizer = loaded_.info.tokenizer != nullptr;
    figures.load = timer_.figures();
    return figures;
  }
  MemoryFigures memory() const {
    const Runtime& runtime = *loaded_.runtime;
    const EngineConfig& engine = runtime.engine->config();
    const KvLayout layout = runtime.model->kv_layout(engine.kv_dtype, engine.block_len);
    return {.weights = static_cast<double>(runtime.model->weight_bytes()),
            .kv_pool = static_cast<double>(engine.num_blocks * layout.block_bytes()),
            .buffers = static_cast<double>(runtime.model->buffer_bytes()),
            .peak_growth = resident_bytes().peak - resident_before_};
  }

 private:
  LoadedModel loaded_;
  LoadTimer timer_;
  double resident_before_ = 0;
  DotChain::Numbers numbers_ = DotChain::Numbers::kF32;
};

}  // namespace

template <typename Figure>
Spread ModelCase::over_rounds(const Figure& figure) const {
  std::vector<double> samples;
  for (size_t round = 0; round < forward.size(); ++round) samples.push_back(figure(round));
  return spread_of(std::move(samples));
}

Spread ModelCase::engine_share() const {
  return over_rounds([&](size_t round) { return engine[round] / forward[round]; });
}
Spread ModelCase::ops_per_s() const {
  return over_rounds([&](size_t round) { return work.flops / all_tokens() * forward[round]; });
}
Spread ModelCase::read_share() const {
  const double bytes_per_token = (work.weight_bytes + work.kv_bytes) / all_tokens();
  return over_rounds(
      [&](size_t round) { return bytes_per_token * forward[round] / limits[round].bytes_per_s; });
}
Spread ModelCase::dot_share(DotChain::Numbers numbers) const {
  return over_rounds([&](size_t round) {
    const double peak = limits[round].ops(numbers);
    return peak > 0 ? work.flops / all_tokens() * forward[round] / peak : 0;
  });
}

ModelFigures measure_model(const ModelSpeedOptions& options, const ModelSpeedHooks& hooks) {
  if (options.prompt == 0 && options.decode == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "nothing to measure: both the prompt and the tokens to decode are 0");
  const OtherLoad others;
  const TimedModel model(options);
  const ModelBench bench(options, model.loaded());
  ModelFigures figures = model.describe();
  figures.cases = bench.cases();
  for (const ModelCase& c : figures.cases) bench.engine_rate(c);  // warms up
  figures.memory = model.memory();
  if (hooks.loaded) hooks.loaded(figures);
  MachineProbe probe(model.loaded().runtime->kernels->threads(), options.memory_mib << 20);
  for (ModelCase& c : figures.cases) {
    bench.measure(c, probe);
    if (hooks.measured) hooks.measured(figures, c);
  }
  figures.other_cpus = others.cpus().value_or(0);
  return figures;
}

}  // namespace lmdeploy
