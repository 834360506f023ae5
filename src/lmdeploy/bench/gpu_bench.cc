// A random-weight model of Llama-3-8B's shape on the GPU, as percent of what the card can do: read bandwidth
// for decode steps, bf16 products for prompts. All in one run on one card.
//   gpu_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/half.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/kernels/cuda/device_probe.h"
#include "lmdeploy/models/decoder.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy {
namespace {

constexpr int64_t kRandomRows = 28672, kRandomCols = 4096;

DecoderSpec llama3_8b() {
  DecoderSpec s;
  s.architecture = "LlamaForCausalLM";
  s.hidden_size = 4096;
  s.intermediate_size = 14336;
  s.num_layers = 32;
  s.num_heads = 32;
  s.num_kv_heads = 8;
  s.head_dim = 128;
  s.vocab_size = 128256;
  s.max_positions = 8192;
  s.layers.resize(32);
  s.norm_eps = 1e-5f;
  s.attention_scale = 0.08838834764f;  // 1 / sqrt(128)
  s.rope.theta = 500000;
  s.rope.rotary_dim = 128;
  return s;
}

// The same random numbers for all weights: they differ on the device only by where they lie.
class RandomWeights {
 public:
  RandomWeights() : numbers_(DType::kBF16, {kRandomRows, kRandomCols}) {
    Rng rng(1);
    for (BF16& value : numbers_.span<BF16>())
      value = to_bf16(static_cast<float>(0.04 * rng.uniform() - 0.02));
  }
  std::unique_ptr<PackedWeight> matrix(const Kernels& kernels, int64_t rows, int64_t cols) const {
    const int64_t most = kRandomRows * kRandomCols / cols;  // rows that the numbers are enough for
    std::vector<ConstTensorView> parts;
    for (int64_t row = 0; row < rows; row += most)
      parts.emplace_back(numbers_.view().data(), DType::kBF16, Shape{std::min(most, rows - row), cols});
    return kernels.pack_weight(parts);
  }

 private:
  Tensor numbers_;
};

DecoderWeights make_weights(const DecoderSpec& s, const Kernels& kernels) {
  const RandomWeights random;
  DecoderWeights weights(s.num_layers);
  const auto matrix = [&](Slot slot, int64_t layer, int64_t rows, int64_t cols) {
    weights.add_matrix(slot, layer, random.matrix(kernels, rows, cols));
  };
  const auto norm = [&](Slot slot, int64_t layer) {
    Tensor ones(DType::kF32, {s.hidden_size});
    std::ranges::fill(ones.span<float>(), 1.0f);
    weights.set_vector(slot, layer, kernels.to_device(std::move(ones)));
  };
  const int64_t outside = DecoderWeights::kNoLayer;
  matrix(Slot::kEmbed, outside, s.vocab_size, s.hidden_size);
  matrix(Slot::kLmHead, outside, s.vocab_size, s.hidden_size);
  norm(Slot::kFinalNorm, outside);
  for (int64_t l = 0; l < s.num_layers; ++l) {
    matrix(Slot::kQkv, l, s.q_size() + 2 * s.kv_size(), s.hidden_size);
    matrix(Slot::kO, l, s.hidden_size, s.q_size());
    matrix(Slot::kUp, l, 2 * s.intermediate_size, s.hidden_size);
    matrix(Slot::kDown, l, s.hidden_size, s.intermediate_size);
    norm(Slot::kAttentionNorm, l);
    norm(Slot::kMlpNorm, l);
  }
  return weights;
}

// Seconds of a step: the median of `runs` after two more.
double median_seconds(int runs, const std::function<void()>& step) {
  std::vector<double> times;
  for (int i = 0; i < runs + 2; ++i) {
    cuda::wait_for_device();
    const auto start = std::chrono::steady_clock::now();
    step();
    cuda::wait_for_device();
    if (i >= 2)
      times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

class Bench {
 public:
  Bench()
      : kernels_(make_cuda_kernels(std::make_shared<ThreadPool>(1), DType::kBF16)),
        bandwidth_(cuda::measure_read_bandwidth()),
        product_rate_(cuda::measure_bf16_product()),
        model_(make_decoder(spec_, make_weights(spec_, *kernels_), *kernels_,
                            {.max_step_tokens = 8192, .max_logit_rows = 256})) {
    const CudaDevice card = cuda_status().devices.front();
    std::printf("%s: read %.3f TB/s, bf16 product %.0f TFLOP/s\n", card.name.c_str(), bandwidth_ / 1e12,
                product_rate_ / 1e12);
    std::printf("weights %.2f GB\n", static_cast<double>(model_->weight_bytes()) / 1e9);
  }

  /// `batch` sequences of `context` tokens get one more each.
  void decode(size_t batch, int64_t context) {
    StepRunner runner(*model_, *kernels_,
                      {.kv_dtype = DType::kBF16,
                       .num_sequences = static_cast<int64_t>(batch),
                       .max_tokens = context + 64,
                       .block_len = 64});
    const std::vector<int> prompt(static_cast<size_t>(context), 7);
    std::vector<StepRunner::Chunk> chunks;
    for (size_t s = 0; s < batch; ++s) {
      runner.start(s, context);
      const StepRunner::Chunk chunk = {.sequence = s, .ids = prompt};
      runner.step({&chunk, 1});
      chunks.push_back({.sequence = s, .ids = std::span(prompt).first(1)});
    }
    const double seconds = median_seconds(40, [&] { runner.step(chunks); });
    const double kv_bytes = static_cast<double>(batch) * static_cast<double>(context) *
                            static_cast<double>(4 * spec_.num_layers * spec_.kv_size());
    const double embedding =
        2.0 * static_cast<double>(spec_.vocab_size * spec_.hidden_size);  // one row of it is read
    const double limit = (static_cast<double>(model_->weight_bytes()) - embedding + kv_bytes) / bandwidth_;
    report("decode", batch, context, seconds, static_cast<double>(batch) / seconds, limit);
  }

  void prefill(int64_t tokens) {
    StepRunner runner(*model_, *kernels_, {.kv_dtype = DType::kBF16, .max_tokens = tokens, .block_len = 64});
    const std::vector<int> prompt(static_cast<size_t>(tokens), 7);
    const double seconds = median_seconds(5, [&] {
      runner.start(0, tokens);
      const StepRunner::Chunk chunk = {.ids = prompt};
      runner.step({&chunk, 1});
    });
    const double linear =
        static_cast<double>(spec_.num_layers) * static_cast<double>(spec_.hidden_size) *
        static_cast<double>(2 * spec_.q_size() + 2 * spec_.kv_size() + 3 * spec_.intermediate_size);
    const double n = static_cast<double>(tokens);
    const double attention = 2.0 * static_cast<double>(spec_.num_layers * spec_.q_size()) * n * n;
    report("prefill", 1, tokens, seconds, n / seconds, (2 * linear * n + attention) / product_rate_);
  }

 private:
  static void report(const char* what, size_t batch, int64_t tokens, double seconds, double rate,
                     double limit) {
    std::printf("%s batch %zu, %lld tokens: %.3f ms, %.1f tokens/s, limit %.3f ms, %.1f %% of it\n", what,
                batch, static_cast<long long>(tokens), seconds * 1e3, rate, limit * 1e3,
                100 * limit / seconds);
    std::fflush(stdout);
  }

  const DecoderSpec spec_ = llama3_8b();
  const std::unique_ptr<Kernels> kernels_;
  const double bandwidth_, product_rate_;  // bytes and operations a second
  const std::unique_ptr<Model> model_;
};

}  // namespace
}  // namespace lmdeploy

int main() try {
  lmdeploy::Bench bench;
  bench.decode(1, 128);
  bench.decode(1, 2048);
  bench.decode(16, 1024);
  bench.decode(64, 1024);
  bench.prefill(2048);
  bench.prefill(8192);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
