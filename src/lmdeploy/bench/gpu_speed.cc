// A random-weight model of Llama-3-8B's shape on the GPU, its weights of any kind (bf16, u4_g128, ...), as
// percent of what the card can do: read bandwidth for decode steps, bf16 products for prompts. All in one run
// on one card.
//   gpu_bench [bf16] [--deterministic]
// A decode step is timed as the engine makes it, tokens drawn on the GPU; steps one after the other without
// that give the time that the GPU itself needs.
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "lmdeploy/bench/measure.h"
#include "lmdeploy/bench/random_checkpoint.h"
#include "lmdeploy/engine/engine.h"
#include "lmdeploy/kernels/cuda/device_probe.h"
#include "lmdeploy/models/step_runner.h"

namespace lmdeploy {
namespace {

// Seconds of a step: the median of `runs` after two more.
double median_seconds(int runs, const std::function<void()>& step) {
  const auto timed = [&] {
    cuda::wait_for_device();
    return seconds_of([&] {
      step();
      cuda::wait_for_device();
    });
  };
  spread_of(2, timed);
  return spread_of(runs, timed).median;
}

class Bench {
 public:
  Bench(DType weights, const CudaOptions& options)
      : kernels_(make_cuda_kernels(std::make_shared<ThreadPool>(1), DType::kBF16, options)),
        bandwidth_(cuda::measure_read_bandwidth()),
        product_rate_(cuda::measure_bf16_product()),
        model_(load_model(*make_random_checkpoint("llama-8b", weights, /*seed=*/1), *kernels_,
                          {.max_step_tokens = 8192, .max_logit_rows = 256})) {
    const CudaDevice card = cuda_status().devices.front();
    std::printf("%s: read %.3f TB/s, bf16 product %.0f TFLOP/s\n", card.name.c_str(), bandwidth_ / 1e12,
                product_rate_ / 1e12);
    std::printf("weights in %s, %.2f GB\n", std::string(to_string(weights)).c_str(),
                static_cast<double>(model_->weight_bytes()) / 1e9);
  }

  /// `batch` sequences of `context` tokens get one more each.
  void decode(size_t batch, int64_t context, DType kv_dtype = DType::kBF16) {
    StepRunner runner(*model_, *kernels_,
                      {.kv_dtype = kv_dtype,
                       .num_sequences = static_cast<int64_t>(batch),
                       .max_tokens = context + 128,
                       .block_len = 64});
    const std::vector<int> prompt(static_cast<size_t>(context), 7);
    std::vector<StepRunner::Chunk> chunks;
    for (size_t s = 0; s < batch; ++s) {
      runner.start(s, context);
      const StepRunner::Chunk chunk = {.sequence = s, .ids = prompt};
      runner.step({&chunk, 1});
      chunks.push_back({.sequence = s, .ids = std::span(prompt).first(1)});
    }
    std::vector<TokenDraw> draws(batch);
    std::vector<DrawnToken> drawn(batch);
    for (size_t s = 0; s < batch; ++s) draws[s].row = static_cast<int32_t>(s);
    const double seconds =
        median_seconds(40, [&] { kernels_->draw_tokens(drawn, runner.start_step(chunks), draws, {}); });
    constexpr int kSteps = 10;
    const double of_many = median_seconds(5, [&] {
      for (int i = 0; i < kSteps; ++i) runner.start_step(chunks);
    });
    const StepWork work =
        model_->step_work({.num_sequences = static_cast<int64_t>(batch), .kv_len = context}, kv_dtype);
    const double limit = (work.weight_bytes + work.kv_bytes) / bandwidth_;
    std::printf("KV cache in %s, the GPU alone %.3f ms: ", std::string(kv_name(kv_dtype)).c_str(),
                of_many / kSteps * 1e3);
    report("decode", batch, context, seconds, static_cast<double>(batch) / seconds, limit);
  }

  /// The engine with `batch` requests: time between steps, while all of them run.
  void engine(int64_t batch, int64_t prompt, int64_t new_tokens) {
    EngineConfig config;
    config.max_batch_size = batch;
    config.num_blocks = batch * ((prompt + new_tokens) / 64 + 1);
    config.kv_dtype = DType::kBF16;
    config.max_prefill_token_num = 8192 - batch;
    config.max_logit_rows = 256;
    Engine engine(*model_, *kernels_, config);
    std::vector<std::unique_ptr<RequestHandle>> handles;
    for (int64_t i = 0; i < batch; ++i) {
      Request request;
      request.input_ids.assign(static_cast<size_t>(prompt), static_cast<int>(7 + i));
      request.max_new_tokens = new_tokens;
      handles.push_back(engine.submit(std::move(request)));
    }
    // All prompts are read and the step of all sequences has been recorded.
    while (engine.stats().prompt_tokens < batch * prompt)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const int64_t before = engine.stats().steps; engine.stats().steps < before + 4;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int64_t steps = engine.stats().steps;
    const double seconds = seconds_of([&] {
      while (engine.stats().steps < steps + new_tokens / 2)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
    const auto count = static_cast<double>(engine.stats().steps - steps);
    std::printf("engine, batch %lld, %lld tokens: %.3f ms a step\n", static_cast<long long>(batch),
                static_cast<long long>(prompt + new_tokens / 4), seconds / count * 1e3);
    std::fflush(stdout);
  }

  void prefill(int64_t tokens) {
    StepRunner runner(*model_, *kernels_, {.kv_dtype = DType::kBF16, .max_tokens = tokens, .block_len = 64});
    const std::vector<int> prompt(static_cast<size_t>(tokens), 7);
    const double seconds = median_seconds(5, [&] {
      runner.start(0, tokens);
      const StepRunner::Chunk chunk = {.ids = prompt};
      runner.step({&chunk, 1});
    });
    const StepWork work = model_->step_work({.tokens = tokens, .kv_len = tokens}, DType::kBF16);
    report("prefill", 1, tokens, seconds, static_cast<double>(tokens) / seconds, work.flops / product_rate_);
  }

 private:
  static void report(const char* what, size_t batch, int64_t tokens, double seconds, double rate,
                     double limit) {
    std::printf("%s batch %zu, %lld tokens: %.3f ms, %.1f tokens/s, limit %.3f ms, %.1f %% of it\n", what,
                batch, static_cast<long long>(tokens), seconds * 1e3, rate, limit * 1e3,
                100 * limit / seconds);
    std::fflush(stdout);
  }

  const std::unique_ptr<Kernels> kernels_;
  const double bandwidth_, product_rate_;  // bytes and operations a second
  const std::unique_ptr<Model> model_;
};

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) try {
  std::string_view kind = "bf16";
  bool deterministic = false;
  for (const std::string_view word : std::span(argv, static_cast<size_t>(argc)).subspan(1))
    (word == "--deterministic") ? deterministic = true : (kind = word, true);
  const std::optional<lmdeploy::DType> weights = lmdeploy::dtype_from_string(kind);
  if (!weights) {
    std::fprintf(stderr, "usage: gpu_bench [bf16] [--deterministic]; %s is no kind of weights\n",
                 std::string(kind).c_str());
    return 2;
  }
  lmdeploy::Bench bench(*weights, {.batch_invariant = deterministic});
  bench.decode(1, 128);
  bench.decode(1, 2048);
  bench.decode(16, 1024);
  bench.decode(64, 1024);
  for (const lmdeploy::DType kv_dtype : {lmdeploy::DType::kU8, lmdeploy::DType::kU4}) {
    bench.decode(16, 1024, kv_dtype);
    bench.decode(64, 1024, kv_dtype);
    bench.decode(256, 1024, kv_dtype);
  }
  bench.decode(256, 1024);
  bench.engine(1, 1024, 100);
  bench.engine(64, 1024, 100);
  bench.prefill(2048);
  bench.prefill(8192);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
