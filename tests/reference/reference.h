// What the demo model must say: prompts, the fixed text, and the stored values of the f64 reference.
#pragma once

#include <string>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/models/model.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy::reference {

inline constexpr int kGreedyTokens = 64;
inline constexpr int kPerplexityTokens = 2000;

inline const std::vector<std::string>& prompts() {
  static const std::vector<std::string> list = {
      "What is the capital of France?", "Explain why the sky is blue.", "Write a short poem about the sea.",
      "List three uses of a paper clip.", "Who wrote Romeo and Juliet, and when?"};
  return list;
}

std::string data_folder();  // tests/data/reference
std::string demo_model();   // models/SmolLM2-135M-Instruct-Q4_1.gguf
/// The first kPerplexityTokens ids of english.txt.
std::vector<int> perplexity_ids(const Tokenizer& tokenizer);
/// Ids of one chat prompt, template applied.
std::vector<int> prompt_ids(const Tokenizer& tokenizer, const std::string& prompt);

struct Greedy {
  std::vector<int> ids;
  std::vector<double> gaps;  // top-1 minus top-2 logit at each step
  double max_logit = 0;      // largest |logit| seen
};
/// kGreedyTokens steps; ends are not honoured.
Greedy run_greedy(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& prompt);
/// Mean negative log-likelihood per token, computed chunk by chunk.
double mean_nll(Model& model, const Kernels& kernels, DType kv_dtype, const std::vector<int>& ids);

}  // namespace lmdeploy::reference
