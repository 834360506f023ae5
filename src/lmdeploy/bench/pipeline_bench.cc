// The whole engine on a real model: load time, first token, one stream, and many streams of mixed length
// together.
//   pipeline_bench MODEL [NUM_REQUESTS] [DTYPE] [QUANT_POLICY]
// Prints the ratio of the two throughputs, the peak resident size, and whether each request got the same ids
// together as alone (float32; otherwise the share that did).
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"
#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Workload {
  std::vector<Prompt> prompts;
  std::vector<GenerationConfig> configs;
};

// Prompts of 4 to 40 words and 16 to 128 new tokens; the same for each run.
Workload mixed_workload(size_t num_requests) {
  static const char* const kWords[] = {"river",  "engine", "light",  "paper",
                                       "number", "garden", "winter", "music"};
  Rng rng(2024);
  Workload work;
  for (size_t i = 0; i < num_requests; ++i) {
    std::string text = "Tell me something about";
    for (uint64_t words = 4 + rng.below(37); words > 0; --words)
      text += std::string(" ") + kWords[rng.below(8)];
    work.prompts.emplace_back(text);
    GenerationConfig config;
    config.max_new_tokens = static_cast<int64_t>(16 + rng.below(113));
    config.ignore_eos = true;
    work.configs.push_back(config);
  }
  return work;
}

int64_t total_tokens(const std::vector<Response>& responses) {
  int64_t total = 0;
  for (const Response& r : responses) total += r.generate_token_len;
  return total;
}

double first_token_seconds(Pipeline& pipeline) {
  const auto start = Clock::now();
  const auto stream = pipeline.submit(std::string("Hello!"), {});
  while (true) {
    const auto piece = stream->next(std::chrono::seconds(60));
    if (!piece || !piece->token_ids.empty()) return seconds_since(start);
  }
}

double peak_resident_mb() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

void run(const std::string& model, size_t num_requests, const std::string& dtype, int quant_policy) {
  PipelineConfig config;
  config.model_path = model;
  config.dtype = dtype;
  config.quant_policy = quant_policy;
  auto start = Clock::now();
  Pipeline pipeline(config);
  std::printf("load %.2f s, first token %.3f s\n", seconds_since(start), first_token_seconds(pipeline));

  const Workload work = mixed_workload(num_requests);
  start = Clock::now();
  std::vector<Response> alone;
  for (size_t i = 0; i < num_requests; ++i) {
    auto one = pipeline.infer({work.prompts[i]}, {work.configs[i]});
    alone.push_back(std::move(one.front()));
  }
  const double alone_rate = static_cast<double>(total_tokens(alone)) / seconds_since(start);

  start = Clock::now();
  const std::vector<Response> together = pipeline.infer(work.prompts, work.configs);
  const double together_rate = static_cast<double>(total_tokens(together)) / seconds_since(start);

  size_t equal = 0;
  for (size_t i = 0; i < num_requests; ++i) equal += alone[i].token_ids == together[i].token_ids ? 1 : 0;
  std::printf("one by one %.1f tokens/s, %zu together %.1f tokens/s: %.2f times\n", alone_rate, num_requests,
              together_rate, together_rate / alone_rate);
  std::printf("%zu of %zu requests have equal ids; peak resident %.0f MB\n", equal, num_requests,
              peak_resident_mb());
}

}  // namespace
}  // namespace lmdeploy

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [NUM_REQUESTS] [DTYPE] [QUANT_POLICY]\n", argv[0]);
    return 2;
  }
  try {
    lmdeploy::run(argv[1], argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64, argc > 3 ? argv[3] : "auto",
                  argc > 4 ? std::atoi(argv[4]) : 0);
  } catch (const lmdeploy::Error& e) {
    std::fprintf(stderr, "pipeline_bench: %s\n", e.what());
    return 1;
  }
  return 0;
}
