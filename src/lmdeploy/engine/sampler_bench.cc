// Microseconds a row for the kinds of sampling that requests ask for, on vocabularies of real models.
#include <benchmark/benchmark.h>

#include <vector>

#include "lmdeploy/core/random.h"
#include "lmdeploy/engine/sampler.h"

namespace lmdeploy {
namespace {

struct Mode {
  const char* name;
  float temperature;
  int top_k;
  float top_p, min_p, repetition_penalty;
  int num_logprobs;
};
constexpr Mode kModes[] = {
    {"greedy", 0, 0, 1, 0, 1, -1},
    {"temperature", 1, 0, 1, 0, 1, -1},
    {"top_k_40", 0.7f, 40, 1, 0, 1, -1},
    {"top_p", 0.7f, 0, 0.9f, 0, 1, -1},
    {"top_k_top_p", 0.7f, 40, 0.9f, 0, 1, -1},
    {"min_p", 0.7f, 0, 1, 0.05f, 1, -1},
    {"penalty", 0, 0, 1, 0, 1.1f, -1},
    {"logprobs_5", 0, 0, 1, 0, 1, 5},
};

// Like a model's logits: most near 0, the best some 15 above.
Tensor peaked_logits(int64_t rows, int64_t vocab_size) {
  Tensor logits(DType::kF32, {rows, vocab_size});
  Rng rng(1);
  for (float& logit : logits.span<float>()) {
    const double u = rng.uniform();
    logit = static_cast<float>(4 * (u - 0.5) + (u > 0.999 ? 12 * rng.uniform() : 0));
  }
  return logits;
}

void BM_Sampler(benchmark::State& state) {
  const Mode& mode = kModes[state.range(0)];
  const int64_t vocab_size = state.range(1), rows = state.range(2);
  const Tensor logits = peaked_logits(rows, vocab_size);
  SamplingParams params;
  params.temperature = mode.temperature;
  params.top_k = mode.top_k;
  params.top_p = mode.top_p;
  params.min_p = mode.min_p;
  params.repetition_penalty = mode.repetition_penalty;
  std::vector<int> tokens(1000);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int>(i * 7);
  std::vector<SampleInput> inputs(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    SampleInput& input = inputs[static_cast<size_t>(i)];
    input.row = i;
    input.params = &params;
    input.tokens = tokens;
    input.num_logprobs = mode.num_logprobs;
  }
  ThreadPool threads;
  Sampler sampler(threads);
  for (auto _ : state) {
    for (SampleInput& input : inputs) ++input.draw;
    benchmark::DoNotOptimize(sampler.sample(logits, inputs).data());
  }
  state.SetLabel(mode.name);
  state.counters["us/row"] = benchmark::Counter(static_cast<double>(rows * state.iterations()) * 1e-6,
                                                benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Sampler)
    ->ArgsProduct({benchmark::CreateDenseRange(0, 7, 1), {49152, 151936}, {1, 16}})
    ->UseRealTime()
    ->MinTime(0.1);

}  // namespace
}  // namespace lmdeploy
