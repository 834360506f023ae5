// Computes tests/data/reference/smollm2_q4_1.json with the f64 reference back end on the dequantised weights.
// Run once (48 minutes of processor time); the values only change with the prompts, the text or the model.
//   build/release/tests/reference/make_reference > tests/data/reference/smollm2_q4_1.json
#include <cstdio>

#include "reference.h"

using namespace lmdeploy;

int main() {
  const auto kernels = make_ref_kernels(std::make_shared<ThreadPool>());
  const auto checkpoint = open_checkpoint(reference::demo_model());
  const auto model = load_model(*checkpoint, *kernels, {.max_step_tokens = 256, .max_logit_rows = 256});
  const auto tokenizer = Tokenizer::load(reference::demo_model());
  std::printf("{\n \"prompts\": [\n");
  for (size_t i = 0; i < reference::prompts().size(); ++i) {
    const std::vector<int> ids = reference::prompt_ids(*tokenizer, reference::prompts()[i]);
    const reference::Greedy greedy = reference::run_greedy(*model, *kernels, DType::kF64, ids);
    JsonObject entry;
    entry["prompt"] = reference::prompts()[i];
    entry["prompt_ids"] = JsonArray(ids.begin(), ids.end());
    entry["ids"] = JsonArray(greedy.ids.begin(), greedy.ids.end());
    entry["gaps"] = JsonArray(greedy.gaps.begin(), greedy.gaps.end());
    entry["max_logit"] = greedy.max_logit;
    std::printf("  %s%s\n", to_json_text(entry).c_str(), i + 1 < reference::prompts().size() ? "," : "");
    std::fflush(stdout);
  }
  const double nll =
      reference::mean_nll(*model, *kernels, DType::kF64, reference::perplexity_ids(*tokenizer));
  std::printf(" ],\n \"perplexity_tokens\": %d,\n \"mean_nll\": %.17g\n}\n", reference::kPerplexityTokens,
              nll);
  return 0;
}
