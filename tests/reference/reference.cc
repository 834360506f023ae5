#include "reference.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/models/step_runner.h"
#include "lmdeploy/text/chat/chat_template.h"

namespace lmdeploy::reference {
namespace {
constexpr int64_t kChunk = 256;  // tokens per step; also the largest number of logit rows asked for

// log(sum(exp(row))) in f64.
double log_sum_exp(ConstTensorView logits, int64_t row) {
  double largest = logits.at(row, 0);
  for (int64_t i = 1; i < logits.cols(); ++i) largest = std::max(largest, logits.at(row, i));
  double sum = 0;
  for (int64_t i = 0; i < logits.cols(); ++i) sum += std::exp(logits.at(row, i) - largest);
  return largest + std::log(sum);
}
}  // namespace

std::string data_folder() { return LMDEPLOY_SOURCE_DIR "/tests/data/reference"; }
std::string demo_model() { return LMDEPLOY_SOURCE_DIR "/models/SmolLM2-135M-Instruct-Q4_1.gguf"; }

std::vector<int> perplexity_ids(const Tokenizer& tokenizer) {
  std::vector<int> ids = tokenizer.encode(read_file(data_folder() + "/english.txt"));
  LMD_CHECK(ids.size() >= kPerplexityTokens, ids.size());
  ids.resize(kPerplexityTokens);
  return ids;
}

std::vector<int> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt) {
  const auto chat =
      make_jinja_template(tokenizer.chat_template(), tokenizer.bos_token(), tokenizer.eos_token());
  return tokenizer.encode(chat->render_prompt(prompt), {.add_special_tokens = false, .parse_special = true});
}

Greedy run_greedy(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& prompt) {
  const auto length = static_cast<int64_t>(prompt.size());
  StepRunner runner(model, kernels, {.kv_dtype = kv_dtype, .max_tokens = length + kGreedyTokens});
  runner.start(0, length);
  Greedy result;
  std::span<const int> next = prompt;
  while (result.ids.size() < kGreedyTokens) {
    const StepRunner::Chunk chunk = {.ids = next};
    const ConstTensorView logits = runner.step({&chunk, 1});
    const int best = argmax(logits, 0);
    double second = -INFINITY;
    for (int64_t i = 0; i < logits.cols(); ++i) {
      if (i != best) second = std::max(second, logits.at(0, i));
      result.max_logit = std::max(result.max_logit, std::abs(logits.at(0, i)));
    }
    result.ids.push_back(best);
    result.gaps.push_back(logits.at(0, best) - second);
    next = {&result.ids.back(), 1};
  }
  return result;
}

double mean_nll(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& ids) {
  const auto total = static_cast<int64_t>(ids.size());
  StepRunner runner(model, kernels, {.kv_dtype = kv_dtype, .max_tokens = total});
  runner.start(0, total);
  double sum = 0;
  for (int64_t begin = 0; begin < total; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, total);
    const StepRunner::Chunk chunk = {
        .ids = std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)),
        .num_logits = end - begin};
    const ConstTensorView logits = runner.step({&chunk, 1});
    for (int64_t i = begin; i < end && i + 1 < total; ++i)
      sum += log_sum_exp(logits, i - begin) - logits.at(i - begin, ids[static_cast<size_t>(i) + 1]);
  }
  return sum / static_cast<double>(total - 1);
}

}  // namespace lmdeploy::reference
