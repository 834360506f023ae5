// Blocks of single steps: decode, prefill, and what the engine adds between steps.
#include <algorithm>
#include <functional>
#include <vector>

#include "lmdeploy/bench/bench_gates.h"
#include "lmdeploy/bench/model_blocks.h"
#include "lmdeploy/bench/serving_run.h"
#include "lmdeploy/bench/step_speed.h"
#include "lmdeploy/bench/text_line.h"
#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

std::string ms_text(double seconds) { return cat(three_digits(seconds * 1e3), " ms"); }

/// A decode step that is to be measured.
struct DecodeCase {
  DType kv_dtype;
  int64_t batch, context;
};

using DecodeBody = std::function<void(const BenchModel&, const DecodeCase&, const JsonObject& setting)>;

// With `more_tokens` of each sequence beyond its context.
void for_each_decode(const std::string& block, const ModelChoice& choice, const DecodeOptions& options,
                     int64_t more_tokens, const BenchDevice& device, BenchReport& report,
                     const DecodeBody& body) {
  for_each_model(block, choice, device, report, [&](const BenchModel& bench) {
    for (const DType kv_dtype : choice.kv_dtypes)
      for (const int64_t batch : options.batches)
        for (const int64_t context : options.contexts) {
          JsonObject setting = setting_of(bench, kv_dtype);
          setting["batch"] = batch;
          setting["context"] = context;
          const int64_t bytes = bench.cache_bytes(bench.num_blocks(batch, context + more_tokens), kv_dtype);
          if (begin_case(bench, bytes, block, setting, report))
            body(bench, {kv_dtype, batch, context}, setting);
        }
  });
}

double limit_of(const BenchModel& bench, const DecodeCase& c) {
  return step_limit(bench.model().step_work({.num_sequences = c.batch, .kv_len = c.context}, c.kv_dtype),
                    bench.rates());
}

// Seconds between tokens of a sequence in the engine while all decode, around the context. All begin in one
// step, with a prompt of one token, so that all see as many keys.
double engine_step_seconds(const BenchModel& bench, const DecodeCase& c) {
  EngineConfig config;
  config.max_batch_size = c.batch;
  config.session_len = 2 * c.context;
  config.num_blocks = bench.num_blocks(c.batch, config.session_len);
  config.kv_dtype = c.kv_dtype;
  config.max_prefill_token_num = BenchModel::kPromptTokens;
  config.max_logit_rows = BenchModel::kMostBatch;
  Engine engine(bench.model(), bench.kernels(), config);
  const std::vector<TraceRequest> trace(static_cast<size_t>(c.batch),
                                        {.prompt_tokens = 1, .output_tokens = 2 * c.context - 1});
  return serve_trace(engine, trace, bench.model().spec().vocab_size, /*seed=*/1).token_gap_s.p50;
}

}  // namespace

void run_decode(const ModelChoice& choice, const DecodeOptions& options, const BenchDevice& device,
                BenchReport& report) {
  const auto measure = [&](const BenchModel& bench, const DecodeCase& c, const JsonObject& setting) {
    const DecodeTimes times = decode_times(bench, c.kv_dtype, c.batch, c.context);
    const double rate = static_cast<double>(c.batch) / times.step_s, limit = limit_of(bench, c);
    BenchResult result = {.block = "decode", .setting = setting, .limit_s = limit, .seconds = times.step_s};
    result.figures = {{"step_s", times.step_s},
                      {"device_s", times.device_s},
                      {"draw_s", times.draw_s},
                      {"tokens_per_s", rate}};
    result.text = cat(ms_text(times.step_s), " (the device alone ", ms_text(times.device_s), "), ",
                      three_digits(rate), " tokens/s");
    if (const auto gate = decode_gate(bench.weights(), c.kv_dtype, c.batch))
      result.gate = at_least(limit / times.step_s, *gate);
    report.add(result);
  };
  for_each_decode("decode", choice, options, /*more_tokens=*/0, device, report, measure);
}

void run_idle(const ModelChoice& choice, const DecodeOptions& options, const BenchDevice& device,
              BenchReport& report) {
  const auto measure = [&](const BenchModel& bench, const DecodeCase& c, const JsonObject& setting) {
    const DecodeTimes times = decode_times(bench, c.kv_dtype, c.batch, c.context);
    const double step = engine_step_seconds(bench, c);
    const double idle = step - times.device_s - times.draw_s;
    BenchResult result = {
        .block = "idle", .setting = setting, .limit_s = limit_of(bench, c), .seconds = step};
    result.figures = {
        {"step_s", step}, {"device_s", times.device_s}, {"draw_s", times.draw_s}, {"idle_s", idle}};
    result.text =
        cat("engine ", ms_text(step), ", the device alone ", ms_text(times.device_s), " and ",
            three_digits(times.draw_s * 1e6), " us to draw tokens, idle ", three_digits(idle * 1e6), " us");
    result.gate = at_most(idle, kIdleGateSeconds);
    report.add(result);
  };
  const int64_t longest = options.contexts.empty() ? 0 : *std::ranges::max_element(options.contexts);
  for_each_decode("idle", choice, options, longest, device, report, measure);
}

void run_prefill(const ModelChoice& choice, const PrefillOptions& options, const BenchDevice& device,
                 BenchReport& report) {
  const auto measure = [&](const BenchModel& bench, DType kv_dtype, int64_t tokens) {
    JsonObject setting = setting_of(bench, kv_dtype);
    setting["tokens"] = tokens;
    if (!begin_case(bench, bench.cache_bytes(bench.num_blocks(1, tokens), kv_dtype), "prefill", setting,
                    report))
      return;
    const double seconds = prefill_seconds(bench, kv_dtype, tokens);
    const double rate = static_cast<double>(tokens) / seconds;
    const double limit =
        step_limit(bench.model().step_work({.tokens = tokens, .kv_len = tokens}, kv_dtype), bench.rates());
    BenchResult result = {.block = "prefill", .setting = setting, .limit_s = limit, .seconds = seconds};
    result.figures = {{"step_s", seconds}, {"tokens_per_s", rate}};
    result.text = cat(ms_text(seconds), ", ", three_digits(rate), " tokens/s");
    if (const auto gate = prefill_gate(tokens)) result.gate = at_least(limit / seconds, *gate);
    report.add(result);
  };
  for_each_model("prefill", choice, device, report, [&](const BenchModel& bench) {
    for (const DType kv_dtype : choice.kv_dtypes)
      for (const int64_t tokens : options.tokens) measure(bench, kv_dtype, tokens);
  });
}

}  // namespace lmdeploy
