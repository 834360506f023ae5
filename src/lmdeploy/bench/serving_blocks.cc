// Blocks of the whole engine: static batches, and traces of requests.
#include <algorithm>
#include <optional>

#include "lmdeploy/bench/bench_gates.h"
#include "lmdeploy/bench/model_blocks.h"
#include "lmdeploy/bench/serving_run.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr uint64_t kIdsSeed = 1;

std::unique_ptr<Engine> make_engine(const BenchModel& bench, DType kv_dtype, int64_t max_batch,
                                    int64_t session_len, int64_t num_blocks) {
  EngineConfig config;
  config.max_batch_size = max_batch;
  config.session_len = session_len;
  config.num_blocks = num_blocks;
  config.kv_dtype = kv_dtype;
  config.max_prefill_token_num = BenchModel::kPromptTokens;
  config.max_logit_rows = BenchModel::kMostBatch;
  return std::make_unique<Engine>(bench.model(), bench.kernels(), config);
}

ServingFigures serve(Engine& engine, const BenchModel& bench, std::span<const TraceRequest> trace) {
  return serve_trace(engine, trace, bench.model().spec().vocab_size, kIdsSeed);
}

// Recordings of steps and scratch memory are made.
void warm_up(Engine& engine, const BenchModel& bench, int64_t batch, int64_t prompt_tokens,
             int64_t output_tokens) {
  const std::vector<TraceRequest> trace(
      static_cast<size_t>(batch),
      {.prompt_tokens = prompt_tokens, .output_tokens = std::min<int64_t>(output_tokens, 8)});
  serve(engine, bench, trace);
}

JsonObject json_of(const ServingFigures& f) {
  const auto json = [](const Percentiles& p) {
    return JsonObject{{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
  };
  return {{"seconds", f.seconds},
          {"requests", f.num_requests},
          {"prompt_tokens", f.prompt_tokens},
          {"output_tokens", f.output_tokens},
          {"requests_per_s", f.requests_per_s()},
          {"output_tokens_per_s", f.output_tokens_per_s()},
          {"total_tokens_per_s", f.total_tokens_per_s()},
          {"largest_batch", f.largest_batch},
          {"preemptions", f.preemptions},
          {"first_token_s", json(f.first_token_s)},
          {"token_gap_s", json(f.token_gap_s)}};
}

std::string ms_text(const Percentiles& p) {
  return cat(three_digits(p.p50 * 1e3), " / ", three_digits(p.p90 * 1e3), " / ", three_digits(p.p99 * 1e3),
             " ms");
}

std::string latency_text(const ServingFigures& f) {
  return cat("first token ", ms_text(f.first_token_s), ", between tokens ", ms_text(f.token_gap_s),
             " (50, 90, 99 %)");
}

std::string rate_text(const ServingFigures& f) {
  return cat(three_digits(f.seconds), " s, ", three_digits(f.requests_per_s()), " requests/s, ",
             three_digits(f.output_tokens_per_s()), " output tokens/s, ",
             three_digits(f.total_tokens_per_s()), " tokens/s in all, batch up to ", f.largest_batch,
             f.preemptions > 0 ? cat(", ", f.preemptions, " preemptions") : "");
}

void run_static_case(const BenchModel& bench, DType kv_dtype, const StaticBatch& batch, BenchReport& report) {
  JsonObject setting = setting_of(bench, kv_dtype);
  setting["batch"] = batch.batch;
  setting["prompt"] = batch.prompt_tokens;
  setting["output"] = batch.output_tokens;
  const int64_t tokens = batch.prompt_tokens + batch.output_tokens + 1;
  const int64_t blocks = bench.num_blocks(batch.batch, tokens);
  if (!begin_case(bench, bench.cache_bytes(blocks, kv_dtype), "static", setting, report)) return;
  const auto engine = make_engine(bench, kv_dtype, batch.batch, tokens, blocks);
  warm_up(*engine, bench, batch.batch, batch.prompt_tokens, batch.output_tokens);
  const std::vector<TraceRequest> trace(
      static_cast<size_t>(batch.batch),
      {.prompt_tokens = batch.prompt_tokens, .output_tokens = batch.output_tokens});
  const ServingFigures figures = serve(*engine, bench, trace);
  report.add({.block = "static",
              .setting = setting,
              .figures = json_of(figures),
              .text = cat(three_digits(figures.seconds), " s, ", three_digits(figures.output_tokens_per_s()),
                          " output tokens/s, ", latency_text(figures)),
              .limit_s = static_limit(bench.model(), kv_dtype, batch, bench.rates()),
              .seconds = figures.seconds});
}

/// The traces of one model.
class TraceRuns {
 public:
  TraceRuns(const BenchModel& bench, const TraceBlockOptions& options, BenchReport& report)
      : bench_(bench), options_(options), report_(report), trace_(make_trace(options.trace)) {}

  void run(DType kv_dtype) {
    JsonObject setting = setting_of(bench_, kv_dtype);
    const auto bytes = static_cast<int64_t>(options_.cache_gb * 1e9);
    if (!begin_case(bench_, bytes, block(), setting, report_)) return;
    const int64_t blocks = bytes / bench_.cache_bytes(1, kv_dtype);
    const int64_t longest = 2 * options_.trace.longest + 1;
    if (blocks < bench_.num_blocks(1, longest))
      return report_.skip(block(), setting, cat("the KV cache holds no request of ", longest, " tokens"));
    const auto engine = make_engine(bench_, kv_dtype, options_.max_batch, longest, blocks);
    warm_up(*engine, bench_, std::min(options_.max_batch, options_.trace.num_requests), 16, 8);
    if (options_.rates.empty()) run_offline(*engine, kv_dtype, setting);
    for (const double rate : options_.rates) run_arrivals(*engine, kv_dtype, setting, rate);
  }

 private:
  std::string block() const { return options_.rates.empty() ? "trace" : "arrivals"; }

  void run_offline(Engine& engine, DType kv_dtype, const JsonObject& setting) {
    const ServingFigures figures = serve(engine, bench_, trace_);
    if (first_kv_rate_ == 0) {
      first_kv_rate_ = figures.output_tokens_per_s();
      first_kv_dtype_ = kv_dtype;
    }
    const double gain = figures.output_tokens_per_s() / first_kv_rate_;
    BenchResult result = result_of(figures, kv_dtype, setting);
    result.figures["gain"] = gain;
    result.text = cat(rate_text(figures), ", ", fixed(gain, 2), " times kv=", first_kv_dtype_);
    const std::optional<double> gate = kv_gain_gate(kv_dtype);
    if (gate && bench_.shape() == "llama2-7b" && first_kv_dtype_ == DType::kBF16)
      result.gate = at_least(gain, *gate);
    report_.add(result);
  }

  void run_arrivals(Engine& engine, DType kv_dtype, JsonObject setting, double rate) {
    setting["rate"] = rate;
    report_.begin(block(), setting);
    const ServingFigures figures =
        serve(engine, bench_, with_arrivals(trace_, rate, options_.trace.seed + 1));
    BenchResult result = result_of(figures, kv_dtype, setting);
    result.text = cat(rate_text(figures), ", ", latency_text(figures));
    report_.add(result);
  }

  BenchResult result_of(const ServingFigures& figures, DType kv_dtype, const JsonObject& setting) const {
    return {.block = block(),
            .setting = setting,
            .figures = json_of(figures),
            .text = {},
            .limit_s = saturated_limit(bench_.model(), kv_dtype, trace_, bench_.rates()),
            .seconds = figures.seconds};
  }

  const BenchModel& bench_;
  const TraceBlockOptions& options_;
  BenchReport& report_;
  const std::vector<TraceRequest> trace_;
  double first_kv_rate_ = 0;  // output tokens a second
  DType first_kv_dtype_ = DType::kBF16;
};

}  // namespace

void run_static(const ModelChoice& choice, const StaticOptions& options, const BenchDevice& device,
                BenchReport& report) {
  for_each_model("static", choice, device, report, [&](const BenchModel& bench) {
    for (const DType kv_dtype : choice.kv_dtypes)
      for (const int64_t batch : options.batches)
        for (size_t i = 0; i < options.prompts.size(); ++i)
          run_static_case(bench, kv_dtype, {batch, options.prompts[i], options.outputs[i]}, report);
  });
}

void run_trace(const ModelChoice& choice, const TraceBlockOptions& options, const BenchDevice& device,
               BenchReport& report) {
  const std::string block = options.rates.empty() ? "trace" : "arrivals";
  for_each_model(block, choice, device, report, [&](const BenchModel& bench) {
    TraceRuns runs(bench, options, report);
    for (const DType kv_dtype : choice.kv_dtypes) runs.run(kv_dtype);
  });
}

}  // namespace lmdeploy
