// Drawing through the whole engine, with a real tiny model: answers of two tokens come as often as the
// model's own logits and the rules of sampling say, and a seed gives the same answer in any company.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core_driver.h"
#include "lmdeploy/engine/exact_sampling.h"
#include "random_llama.h"

namespace lmdeploy::testing {
namespace {

constexpr int kVocab = 12;
constexpr int kStop = 4;

/// What a request draws by.
struct Rules {
  const char* name;
  SamplingParams params;
  int64_t min_new_tokens = 0;
};
void PrintTo(const Rules& rules, std::ostream* out) { *out << rules.name; }

class SamplingTest : public ::testing::TestWithParam<Rules> {
 protected:
  SamplingTest() : kernels_(make_cpu_kernels(std::make_shared<ThreadPool>(1))) {
    const LlamaShape shape = {
        .hidden = 16, .inner = 24, .layers = 1, .heads = 2, .kv_heads = 1, .head_dim = 8, .vocab = kVocab};
    const MemoryCheckpoint checkpoint = make_random_llama(shape, 3);
    model_ = load_model(checkpoint, *kernels_, {.max_step_tokens = 256, .max_logit_rows = 64});
  }
  EngineConfig config() const {
    EngineConfig config = small_config();
    config.num_blocks = 256;
    config.session_len = 32;
    config.max_batch_size = 32;
    config.max_prefill_token_num = 160;
    config.max_logit_rows = 64;
    return config;
  }
  Request request(uint64_t seed) const {
    Request request = request_of(prompt_, 2);
    request.sampling = GetParam().params;
    request.sampling.seed = seed;
    request.stop_ids = {kStop};
    request.min_new_tokens = GetParam().min_new_tokens;
    return request;
  }
  std::vector<float> logits_after(const std::vector<int>& tokens) {
    CoreDriver driver(*model_, config());
    Request request = request_of(tokens, 0);
    request.logits = OutputRows::kGeneration;
    return driver.complete(request).logits;
  }
  /// Of the token after prompt and `answer`, by the reference.
  std::vector<double> probabilities(const std::vector<int>& answer) {
    const std::vector<int> tokens = concat(prompt_, answer), stops = {kStop};
    SampleInput input;
    input.params = &GetParam().params;
    input.tokens = tokens;
    input.generated_begin = static_cast<int64_t>(prompt_.size());
    if (static_cast<int64_t>(answer.size()) < GetParam().min_new_tokens) input.banned_ids = stops;
    return exact_probabilities(logits_after(tokens), input);
  }
  /// Of each answer: place a * kVocab + b for the tokens a and b; a stop ends it.
  std::vector<double> answer_probabilities() {
    std::vector<double> all(kVocab * kVocab, 0);
    const std::vector<double> first = probabilities({});
    for (int a = 0; a < kVocab; ++a) {
      if (a == kStop) all[place({})] = first[kStop];
      if (a == kStop || first[static_cast<size_t>(a)] == 0) continue;
      const std::vector<double> second = probabilities({a});
      for (int b = 0; b < kVocab; ++b)
        all[place(b == kStop ? std::vector<int>{a} : std::vector<int>{a, b})] +=
            first[static_cast<size_t>(a)] * second[static_cast<size_t>(b)];
    }
    return all;
  }
  static size_t place(std::span<const int> answer) {
    const int a = answer.empty() ? kStop : answer[0], b = answer.size() < 2 ? kStop : answer[1];
    return static_cast<size_t>(a * kVocab + b);
  }

  const std::vector<int> prompt_ = {1, 5, 2, 5, 9};
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Model> model_;
};

TEST_P(SamplingTest, AnswersHaveTheExactProbabilities) {
  const int64_t num_draws = num_test_draws(4000);
  CoreDriver driver(*model_, config());
  std::vector<int64_t> counts(kVocab * kVocab, 0);
  for (int64_t begin = 0; begin < num_draws; begin += 40) {
    std::vector<std::shared_ptr<Client>> clients;
    for (int64_t i = begin; i < begin + 40; ++i)
      clients.push_back(driver.submit(request(static_cast<uint64_t>(i))));
    driver.run();
    for (const auto& client : clients) {
      ASSERT_NE(client->output.finish, FinishReason::kError) << client->output.error_message;
      ++counts[place(client->output.token_ids)];
    }
  }
  expect_distribution(counts, answer_probabilities(), num_draws);
}

TEST_P(SamplingTest, ASeedGivesTheSameAnswerInAnyCompany) {
  CoreDriver driver(*model_, config());
  std::vector<std::shared_ptr<Client>> together;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    together.push_back(driver.submit(request(seed)));
    if (seed % 7 == 0) driver.step();
  }
  driver.run();
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CoreDriver alone(*model_, config());
    EXPECT_EQ(alone.complete(request(seed)).token_ids, together[seed]->output.token_ids) << "seed " << seed;
  }
}

SamplingParams params_of(void (*set)(SamplingParams&)) {
  SamplingParams params;
  params.temperature = 1;
  set(params);
  return params;
}

INSTANTIATE_TEST_SUITE_P(
    Rules, SamplingTest,
    ::testing::Values(Rules{"plain", params_of([](auto&) {})},
                      Rules{"greedy", params_of([](auto& p) { p.temperature = 0; })},
                      Rules{"hot", params_of([](auto& p) { p.temperature = 1.8f; })},
                      Rules{"top_k", params_of([](auto& p) { p.top_k = 4; })},
                      Rules{"top_p", params_of([](auto& p) { p.top_p = 0.7f; })},
                      Rules{"min_p", params_of([](auto& p) { p.min_p = 0.2f; })},
                      Rules{"repetition", params_of([](auto& p) { p.repetition_penalty = 1.8f; })},
                      Rules{"presence", params_of([](auto& p) { p.presence_penalty = 2; })},
                      Rules{"frequency", params_of([](auto& p) { p.frequency_penalty = -1; })},
                      Rules{"bias", params_of([](auto& p) {
                              p.logit_bias = {{7, 2.0f}, {3, -100.0f}};
                            })},
                      Rules{"bad_words", params_of([](auto& p) {
                              p.bad_words = {{6}, {9, 2}, {8, 8}};
                            })},
                      Rules{"min_new_tokens", params_of([](auto&) {}), 2},
                      Rules{"everything", params_of([](auto& p) {
                              p.temperature = 0.9f;
                              p.top_k = 8;
                              p.top_p = 0.95f;
                              p.min_p = 0.02f;
                              p.repetition_penalty = 1.2f;
                              p.presence_penalty = 0.3f;
                              p.frequency_penalty = 0.2f;
                              p.logit_bias = {{7, 1.0f}};
                              p.bad_words = {{6}, {9, 2}};
                            }),
                            1}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lmdeploy::testing
