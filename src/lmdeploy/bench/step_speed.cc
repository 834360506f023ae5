#include "lmdeploy/bench/step_speed.h"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy {
namespace {

constexpr int kWarmUps = 3, kDecodeRuns = 41, kPrefillRuns = 5;
constexpr int kManySteps = 10, kManyRuns = 7;  // steps one after the other

std::vector<int> random_ids(const BenchModel& bench, int64_t count) {
  Rng rng(1);
  std::vector<int> ids(static_cast<size_t>(count));
  const auto vocab_size = static_cast<uint64_t>(bench.model().spec().vocab_size);
  for (int& id : ids) id = static_cast<int>(rng.below(vocab_size));
  return ids;
}

// Median seconds of `action`, the device's work included. `prepare` comes before each and is not timed.
double median_seconds(const BenchModel& bench, int runs, const std::function<void()>& prepare,
                      const std::function<void()>& action) {
  const auto timed = [&] {
    prepare();
    bench.wait();
    return seconds_of([&] {
      action();
      bench.wait();
    });
  };
  spread_of(kWarmUps, timed);
  return spread_of(runs, timed).median;
}

/// Sequences that get one token each in a step, the same one again and again.
class DecodeSteps {
 public:
  DecodeSteps(const BenchModel& bench, DType kv_dtype, int64_t batch, int64_t context)
      : bench_(bench),
        context_(context),
        batch_(static_cast<size_t>(batch)),
        runner_(bench.model(), bench.kernels(),
                {.kv_dtype = kv_dtype,
                 .num_sequences = batch,
                 .max_tokens = context,
                 .block_len = BenchModel::kBlockLen}),
        ids_(random_ids(bench, batch)),
        draws_(batch_) {
    LMD_CHECK(batch <= BenchModel::kMostBatch, batch, " sequences");
    read_prompts();
    for (size_t s = 0; s < batch_; ++s) {
      chunks_.push_back({.sequence = s, .ids = {&ids_[s], 1}});
      draws_[s].row = static_cast<int32_t>(s);
    }
  }

  void rewind() {
    for (size_t s = 0; s < batch_; ++s) runner_.rewind(s, context_ - 1);
  }
  TensorView forward() { return runner_.start_step(chunks_); }
  void forward_and_draw() {
    const TensorView logits = forward();
    if (!bench_.kernels().draws_tokens()) return;
    bench_.kernels().start_draws(logits, draws_, {});
    bench_.kernels().finish_draws();
  }

 private:
  // As many tokens in a step as it takes.
  void read_prompts() {
    const int64_t tokens = context_ - 1;
    const std::vector<int> prompt = random_ids(bench_, tokens);
    std::vector<StepRunner::Chunk> chunks;
    int64_t room = BenchModel::kPromptTokens;
    for (size_t s = 0; s < batch_; ++s) {
      runner_.start(s, tokens);
      for (int64_t done = 0; done < tokens;) {
        const int64_t count = std::min(room, tokens - done);
        chunks.push_back({.sequence = s, .ids = part(prompt, done, count)});
        done += count;
        room -= count;
        if (room > 0 && static_cast<int64_t>(chunks.size()) < BenchModel::kMostBatch) continue;
        runner_.start_step(chunks);
        chunks.clear();
        room = BenchModel::kPromptTokens;
      }
    }
    if (!chunks.empty()) runner_.start_step(chunks);
  }
  static std::span<const int> part(const std::vector<int>& ids, int64_t from, int64_t count) {
    return std::span(ids).subspan(static_cast<size_t>(from), static_cast<size_t>(count));
  }

  const BenchModel& bench_;
  const int64_t context_;
  const size_t batch_;
  StepRunner runner_;
  const std::vector<int> ids_;  // [batch]: of the step
  std::vector<StepRunner::Chunk> chunks_;
  std::vector<TokenDraw> draws_;
};

}  // namespace

DecodeTimes decode_times(const BenchModel& bench, DType kv_dtype, int64_t batch, int64_t context) {
  DecodeSteps steps(bench, kv_dtype, batch, context);
  const auto rewind = [&] { steps.rewind(); };
  // Back between the steps too, so that all see as many keys.
  const auto many = [&] {
    for (int i = 0; i < kManySteps; ++i) {
      steps.rewind();
      steps.forward();
    }
  };
  DecodeTimes times;
  times.step_s = median_seconds(bench, kDecodeRuns, rewind, [&] { steps.forward_and_draw(); });
  // Both wait for the device once, so that only the drawing is between them.
  times.draw_s =
      std::max(0.0, times.step_s - median_seconds(bench, kDecodeRuns, rewind, [&] { steps.forward(); }));
  times.device_s = median_seconds(bench, kManyRuns, rewind, many) / kManySteps;
  return times;
}

double prefill_seconds(const BenchModel& bench, DType kv_dtype, int64_t tokens) {
  StepRunner runner(bench.model(), bench.kernels(),
                    {.kv_dtype = kv_dtype, .max_tokens = tokens, .block_len = BenchModel::kBlockLen});
  const std::vector<int> prompt = random_ids(bench, tokens);
  const StepRunner::Chunk chunk = {.ids = prompt};
  return median_seconds(
      bench, kPrefillRuns, [&] { runner.start(0, tokens); },
      [&] {
        runner.start_step({&chunk, 1});
      });
}

}  // namespace lmdeploy
