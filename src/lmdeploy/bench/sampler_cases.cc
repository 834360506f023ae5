// The kinds of sampling that requests ask for, on vocabularies of real models.
#include <vector>

#include "lmdeploy/bench/kernel_cases.h"
#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/engine/sampler.h"

namespace lmdeploy {
namespace {

struct SamplerMode {
  const char* name;
  float temperature = 1;
  int top_k = 0;
  float top_p = 1, min_p = 0, repetition_penalty = 1;
  int num_logprobs = -1;
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

/// One step's sampling; each row has drawn a thousand tokens before.
class SamplerStep {
 public:
  SamplerStep(ThreadPool& threads, const SamplerMode& mode, int64_t vocab_size, int64_t rows)
      : logits_(peaked_logits(rows, vocab_size)), inputs_(static_cast<size_t>(rows)), sampler_(threads) {
    params_.temperature = mode.temperature;
    params_.top_k = mode.top_k;
    params_.top_p = mode.top_p;
    params_.min_p = mode.min_p;
    params_.repetition_penalty = mode.repetition_penalty;
    for (size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = static_cast<int>(i * 7);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i].row = static_cast<int64_t>(i);
      inputs_[i].params = &params_;
      inputs_[i].tokens = tokens_;
      inputs_[i].num_logprobs = mode.num_logprobs;
    }
  }
  void run() {
    for (SampleInput& input : inputs_) ++input.draw;
    sampler_.sample(logits_, inputs_);
  }
  double bytes() const { return static_cast<double>(logits_.bytes()); }

 private:
  const Tensor logits_;
  SamplingParams params_;
  std::vector<int> tokens_ = std::vector<int>(1000);
  std::vector<SampleInput> inputs_;
  Sampler sampler_;
};

}  // namespace

void add_sampler_cases(KernelCases& cases) {
  constexpr SamplerMode kModes[] = {{.name = "greedy", .temperature = 0},
                                    {.name = "temperature"},
                                    {.name = "top_k_40", .temperature = 0.7f, .top_k = 40},
                                    {.name = "top_p", .temperature = 0.7f, .top_p = 0.9f},
                                    {.name = "top_k_top_p", .temperature = 0.7f, .top_k = 40, .top_p = 0.9f},
                                    {.name = "min_p", .temperature = 0.7f, .min_p = 0.05f},
                                    {.name = "penalty", .temperature = 0, .repetition_penalty = 1.1f},
                                    {.name = "logprobs_5", .temperature = 0, .num_logprobs = 5}};
  for (const SamplerMode& mode : kModes)
    for (const int64_t vocab_size : {49152, 151936})
      for (const int64_t rows : {1, 16})
        cases.push_back({cat("sample/", mode.name, "/", vocab_size, "/rows:", rows), [=](KernelBench& bench) {
                           const auto step =
                               std::make_shared<SamplerStep>(bench.threads(), mode, vocab_size, rows);
                           return KernelCall{.run = [step] { step->run(); }, .bytes = step->bytes()};
                         }});
}

}  // namespace lmdeploy
