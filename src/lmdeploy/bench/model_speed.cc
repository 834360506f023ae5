#include "lmdeploy/bench/model_speed.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include "lmdeploy/bench/proc_files.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/models/kv_groups.h"
#include "lmdeploy/models/model_plan.h"
#include "lmdeploy/models/step_runner.h"
#include "lmdeploy/pipeline/loaded_model.h"
#include "lmdeploy/pipeline/streams.h"

namespace lmdeploy {
namespace {

constexpr int64_t kBlockLen = 64;
constexpr int64_t kMostStepTokens = 8192;  // the engine's default
constexpr int64_t kFirstPrompt = 8;        // tokens of the prompt that ends loading
constexpr std::chrono::milliseconds kPatience{1000};

// The engine needs a prompt of one token.
int64_t tokens_before(const ModelSpeedOptions& options) { return std::max<int64_t>(options.depth, 1); }

// As many as the largest case takes, so that the pool's size says what is in use.
int64_t pool_blocks(const ModelSpeedOptions& options, const Checkpoint& checkpoint) {
  const auto blocks = [](int64_t tokens) { return (tokens + kBlockLen - 1) / kBlockLen; };
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
  config.device_type = "cpu";
  config.num_threads = options.num_threads;
  config.cache_block_seq_len = kBlockLen;
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

// ---- Loading ---------------------------------------------------------------------------------------------

// One thread, to fresh memory piece by piece.
double copy_seconds(std::span<const std::byte> source) {
  constexpr size_t kPiece = size_t{64} << 20;
  return seconds_of([&] {
    for (size_t at = 0; at < source.size(); at += kPiece) {
      const size_t size = std::min(kPiece, source.size() - at);
      const Buffer fresh(size, host_allocator());
      std::memcpy(fresh.data(), source.data() + at, size);
    }
  });
}

// The second copy of each file is timed: the first one brings it into the page cache.
double copy_files_seconds(const std::vector<std::string>& files) {
  double seconds = 0;
  for (const std::string& file : files) {
    const MappedFile mapped(file);
    copy_seconds(mapped.bytes());
    seconds += copy_seconds(mapped.bytes());
  }
  return seconds;
}

double copy_bytes_seconds(double bytes) {
  const MemoryReader source(int64_t{64} << 20, Pages::kHuge);
  const auto size = static_cast<size_t>(source.bytes());
  double seconds = 0;
  for (auto left = static_cast<size_t>(bytes); left > 0; left -= std::min(left, size))
    seconds += copy_seconds({source.data(), std::min(left, size)});
  return seconds;
}

double stored_bytes(const Checkpoint& checkpoint) {
  double bytes = 0;
  for (const TensorInfo& tensor : checkpoint.tensors())
    bytes += static_cast<double>(tensor.shape.rank() == 0 ? block_bytes(tensor.dtype)
                                                          : row_bytes(tensor.dtype, tensor.shape.numel()));
  return bytes;
}

double file_bytes(const std::vector<std::string>& files) {
  double bytes = 0;
  for (const std::string& file : files) bytes += static_cast<double>(MappedFile(file).bytes().size());
  return bytes;
}

/// A checkpoint that is opened anew to be timed.
class Source {
 public:
  explicit Source(const ModelSpeedOptions& options) : options_(options) {}

  LoadedModel load(LoadFigures& figures) {
    if (options_.shape.empty()) {
      const std::vector<std::string> files = open_checkpoint(options_.model_path)->files();
      figures.bytes = file_bytes(files);
      figures.copy_s = copy_files_seconds(files);
      started_ = Clock::now();
      const auto checkpoint = open_checkpoint(options_.model_path);
      return load(*checkpoint, figures);
    }
    const auto checkpoint = make_random_checkpoint(options_.shape, options_.weights, options_.seed);
    figures.bytes = stored_bytes(*checkpoint);
    figures.copy_s = copy_bytes_seconds(figures.bytes);
    started_ = Clock::now();
    LoadedModel loaded = load(*checkpoint, figures);
    making_s_ = checkpoint->making_seconds();
    figures.load_s -= making_s_;
    return loaded;
  }
  /// Whether most weights are quantised and meet activations in bytes.
  bool in_int8(const LoadedModel& loaded) const {
    return mostly_quantized_ && loaded.runtime->kernels->name().ends_with("-int8");
  }
  double seconds_since_start() const { return seconds_since(started_) - making_s_; }

 private:
  LoadedModel load(const Checkpoint& checkpoint, LoadFigures& figures) {
    int64_t quantized = 0, all = 0;
    for (const TensorInfo& tensor : checkpoint.tensors()) {
      all += tensor.shape.numel();
      if (is_quantized(tensor.dtype)) quantized += tensor.shape.numel();
    }
    mostly_quantized_ = 2 * quantized > all;
    LoadedModel loaded = load_pipeline_model(pipeline_config(options_, checkpoint), checkpoint);
    figures.load_s = seconds_since(started_);
    return loaded;
  }

  const ModelSpeedOptions& options_;
  Clock::time_point started_;
  double making_s_ = 0;
  bool mostly_quantized_ = false;
};

// ---- The engine ------------------------------------------------------------------------------------------

/// Requests that run together, read by one thread.
class EngineRun {
 public:
  EngineRun(const LoadedModel& loaded, int64_t batch, std::span<const int> prompt, int64_t new_tokens)
      : engine_(*loaded.runtime->engine), num_waiting_(batch), generated_before_(generated()) {
    for (int64_t i = 0; i < batch; ++i) {
      Request request;
      request.input_ids.assign(prompt.begin(), prompt.end());
      request.max_new_tokens = new_tokens;
      streams_.push_back(std::make_unique<EngineStream>(engine_.submit(std::move(request)),
                                                        TextStream(loaded.info.tokenizer, {})));
      streams_.back()->set_notify([this, first = true]() mutable {
        if (std::exchange(first, false)) note_first_token();
      });
    }
  }
  void read_to_end() {
    for (bool running = true; running;) {
      running = false;
      for (const auto& stream : streams_) {
        if (stream->finished()) continue;
        const std::optional<Response> piece = stream->next(kPatience);
        if (piece && piece->error_code) throw Error(*piece->error_code, piece->error_message);
        running = true;
      }
    }
    end_ = Clock::now();
  }
  /// Tokens a second from the moment when all requests had one, to the end.
  double decode_rate() const {
    return static_cast<double>(generated() - generated_at_start_) /
           std::chrono::duration<double>(end_ - all_started_).count();
  }
  int64_t tokens() const { return generated() - generated_before_; }

 private:
  int64_t generated() const { return engine_.stats().generated_tokens; }
  // On the engine's thread, between two steps: the reader may be late.
  void note_first_token() {
    const std::lock_guard lock(mutex_);
    if (--num_waiting_ > 0) return;
    all_started_ = Clock::now();
    generated_at_start_ = generated();
  }

  Engine& engine_;
  std::mutex mutex_;
  int64_t num_waiting_;
  const int64_t generated_before_;
  int64_t generated_at_start_ = 0;
  Clock::time_point all_started_, end_;
  std::vector<std::unique_ptr<EngineStream>> streams_;  // last: they call back
};

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

// ---- The forward pass ------------------------------------------------------------------------------------

/// Sequences of one length, stepped by hand.
class ForwardRun {
 public:
  ForwardRun(const LoadedModel& loaded, int64_t batch, int64_t most_tokens)
      : most_step_tokens_(*loaded.info.config.max_prefill_token_num),
        runner_(*loaded.runtime->model, *loaded.runtime->kernels,
                {.kv_dtype = loaded.runtime->engine->config().kv_dtype,
                 .num_sequences = batch,
                 .max_tokens = most_tokens,
                 .block_len = kBlockLen}),
        batch_(static_cast<size_t>(batch)) {
    for (size_t s = 0; s < batch_; ++s) runner_.start(s, most_tokens);
  }
  /// In as many steps as it needs; logits of the last token.
  void prefill(size_t sequence, std::span<const int> ids) {
    while (!ids.empty()) {
      const size_t count = std::min(ids.size(), static_cast<size_t>(most_step_tokens_));
      const StepRunner::Chunk chunk = {
          .sequence = sequence, .ids = ids.first(count), .num_logits = ids.size() == count ? 1 : 0};
      runner_.step({&chunk, 1});
      ids = ids.subspan(count);
    }
  }
  /// One more token of each sequence.
  void decode(int id) {
    std::vector<StepRunner::Chunk> chunks;
    for (size_t s = 0; s < batch_; ++s) chunks.push_back({.sequence = s, .ids = {&id, 1}});
    runner_.step(chunks);
  }

 private:
  const int64_t most_step_tokens_;
  StepRunner runner_;
  const size_t batch_;
};

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

// ---- Both ------------------------------------------------------------------------------------------------

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

double first_token_seconds(const Source& source, const LoadedModel& loaded) {
  const std::vector<int> prompt = random_ids(kFirstPrompt, loaded.info.spec.vocab_size);
  EngineRun(loaded, 1, prompt, 1).read_to_end();
  return source.seconds_since_start();
}

ModelFigures describe(const LoadedModel& loaded) {
  const Runtime& runtime = *loaded.runtime;
  ModelFigures figures;
  figures.name = loaded.info.config.model_path;
  figures.architecture = loaded.info.spec.architecture;
  figures.backend = runtime.kernels->name();
  figures.kv_dtype = runtime.engine->config().kv_dtype;
  figures.num_threads = runtime.kernels->threads().num_threads();
  figures.has_tokenizer = loaded.info.tokenizer != nullptr;
  return figures;
}

MemoryFigures memory_figures(const LoadedModel& loaded, double resident_before) {
  const Runtime& runtime = *loaded.runtime;
  const EngineConfig& engine = runtime.engine->config();
  const KvLayout layout = runtime.model->kv_layout(engine.kv_dtype, engine.block_len);
  return {.weights = static_cast<double>(runtime.model->weight_bytes()),
          .kv_pool = static_cast<double>(engine.num_blocks * layout.block_bytes()),
          .buffers = static_cast<double>(runtime.model->buffer_bytes()),
          .peak_growth = resident_bytes().peak - resident_before};
}

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
Spread ModelCase::dot_share(bool in_int8) const {
  return over_rounds([&](size_t round) {
    const double peak = in_int8 ? limits[round].int8_ops : limits[round].f32_ops;
    return peak > 0 ? work.flops / all_tokens() * forward[round] / peak : 0;
  });
}

ModelFigures measure_model(const ModelSpeedOptions& options, const ModelSpeedHooks& hooks) {
  if (options.prompt == 0 && options.decode == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "nothing to measure: both the prompt and the tokens to decode are 0");
  const OtherLoad others;
  LoadFigures load;
  Source source(options);
  const double resident_before = resident_bytes().now;
  const LoadedModel loaded = source.load(load);
  load.first_token_s = first_token_seconds(source, loaded);
  ModelFigures figures = describe(loaded);
  figures.load = load;
  figures.in_int8 = source.in_int8(loaded);
  const ModelBench bench(options, loaded);
  figures.cases = bench.cases();
  for (const ModelCase& c : figures.cases) bench.engine_rate(c);  // warms up
  figures.memory = memory_figures(loaded, resident_before);
  if (hooks.loaded) hooks.loaded(figures);
  MachineProbe probe(loaded.runtime->kernels->threads(), options.memory_mib << 20);
  for (ModelCase& c : figures.cases) {
    bench.measure(c, probe);
    if (hooks.measured) hooks.measured(figures, c);
  }
  figures.other_cpus = others.cpus().value_or(0);
  return figures;
}

}  // namespace lmdeploy
