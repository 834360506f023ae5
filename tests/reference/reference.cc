#include "reference.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/chat_template.h"

namespace lmdeploy::reference {
namespace {
constexpr int64_t kBlockLen = 64;
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

Runner::Runner(Model& model, const Kernels& kernels, DType kv_dtype, int64_t max_tokens)
    : model_(model), rope_length_(static_cast<int32_t>(max_tokens)) {
  cache_.layout = model.kv_layout(kv_dtype, kBlockLen);
  cache_.num_blocks = (max_tokens + kBlockLen - 1) / kBlockLen;
  memory_ = Tensor(kv_dtype, {cache_.num_blocks, cache_.layout.block_elements()}, kernels.allocator());
  cache_.data = memory_.view().data();
  block_table_.resize(static_cast<size_t>(cache_.num_blocks));
  std::iota(block_table_.begin(), block_table_.end(), 0);
}

ConstTensorView Runner::append(const std::vector<int>& ids, int64_t num_rows) {
  const std::vector<int32_t> tokens(ids.begin(), ids.end());
  const auto count = static_cast<int32_t>(tokens.size());
  length_ += count;
  const std::vector<int32_t> query_start = {0, count};
  std::vector<int32_t> rows(static_cast<size_t>(num_rows));
  std::iota(rows.begin(), rows.end(), count - static_cast<int32_t>(num_rows));
  StepInput input;
  input.token_ids = tokens;
  input.query_start = query_start;
  input.kv_len = std::span(&length_, 1);
  input.block_table = block_table_;
  input.max_blocks = cache_.num_blocks;
  input.rope_length = std::span(&rope_length_, 1);
  input.logit_rows = rows;
  return model_.forward(input, cache_);
}

Greedy run_greedy(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& prompt) {
  Runner runner(model, kernels, kv_dtype, static_cast<int64_t>(prompt.size()) + kGreedyTokens);
  Greedy result;
  ConstTensorView logits = runner.append(prompt);
  for (int step = 0; step < kGreedyTokens; ++step) {
    int64_t best = 0;
    double second = -INFINITY;
    for (int64_t i = 1; i < logits.cols(); ++i) {
      const double value = logits.at(0, i);
      result.max_logit = std::max(result.max_logit, std::abs(value));
      if (value > logits.at(0, best)) {
        second = logits.at(0, best);
        best = i;
      } else {
        second = std::max(second, value);
      }
    }
    result.ids.push_back(static_cast<int>(best));
    result.gaps.push_back(logits.at(0, best) - second);
    if (step + 1 < kGreedyTokens) logits = runner.append({result.ids.back()});
  }
  return result;
}

double mean_nll(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& ids) {
  const auto total = static_cast<int64_t>(ids.size());
  Runner runner(model, kernels, kv_dtype, total);
  double sum = 0;
  for (int64_t begin = 0; begin < total; begin += kChunk) {
    const int64_t end = std::min(begin + kChunk, total);
    const ConstTensorView logits = runner.append({ids.begin() + begin, ids.begin() + end}, end - begin);
    for (int64_t i = begin; i < end && i + 1 < total; ++i)
      sum += log_sum_exp(logits, i - begin) - logits.at(i - begin, ids[static_cast<size_t>(i) + 1]);
  }
  return sum / static_cast<double>(total - 1);
}

}  // namespace lmdeploy::reference
