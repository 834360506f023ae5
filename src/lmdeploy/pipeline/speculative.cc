#include "lmdeploy/pipeline/speculative.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <string_view>

#include "lmdeploy/core/error.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kMissing[] = {"eagle", "eagle3", "deepseek_mtp", "qwen3_5_mtp", "hy3_mtp"};

SpeculativeMethod method_of(const std::string& name) {
  if (name == "prompt_lookup") return SpeculativeMethod::kPromptLookup;
  if (name == "draft") return SpeculativeMethod::kDraft;
  if (std::ranges::find(kMissing, name) != std::end(kMissing))
    throw Error(ErrorCode::kUnsupported,
                cat("not supported yet: speculative method ", name, "; use prompt_lookup or draft"));
  throw Error(ErrorCode::kInvalidArgument,
              cat("speculative method is \"", name, "\"; expected prompt_lookup or draft"));
}

}  // namespace

SpeculativeConfig speculative_config(const SpeculativeOptions& options) {
  const SpeculativeMethod method = method_of(options.method);
  if (method == SpeculativeMethod::kDraft && options.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "speculative method draft: model is empty; expected the path of a draft model");
  if (method == SpeculativeMethod::kPromptLookup && !options.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                cat("speculative method prompt_lookup: model is ", options.model,
                    "; it uses no model: leave it out, or choose the method draft"));
  const int64_t count = options.num_speculative_tokens;
  if (count < 1 || count > SpeculativeConfig::kMostTokens)
    throw Error(ErrorCode::kInvalidArgument,
                cat("num_speculative_tokens is ", count, "; expected 1 to ", SpeculativeConfig::kMostTokens));
  return {.method = method, .num_tokens = count, .always = false};
}

void check_same_vocabulary(const Tokenizer* tokenizer, const Tokenizer* draft_tokenizer,
                           const std::string& draft_path) {
  if (tokenizer == nullptr || draft_tokenizer == nullptr) return;
  const int end = std::max(tokenizer->vocab_size(), draft_tokenizer->vocab_size());
  const auto text = [](const Tokenizer& of, int id) {
    return id < of.vocab_size() ? of.token_text(id) : std::string_view();
  };
  for (int id = 0; id < end; ++id) {
    const std::string_view own = text(*tokenizer, id), drafted = text(*draft_tokenizer, id);
    if (own != drafted)
      throw Error(ErrorCode::kInvalidArgument,
                  cat("draft model ", draft_path, ": token ", id, " is \"", drafted, "\", the model's is \"",
                      own, "\"; both need the same vocabulary"));
  }
}

std::string speculative_report(const SpeculativeStats& stats) {
  const double rate = stats.num_draft_tokens > 0 ? static_cast<double>(stats.num_accepted_tokens) /
                                                       static_cast<double>(stats.num_draft_tokens)
                                                 : 0;
  std::ostringstream gain;
  gain << std::fixed << std::setprecision(2) << stats.gain();
  return cat("speculative decoding: ", stats.num_drafts, " drafts, ", stats.num_draft_tokens,
             " tokens guessed, ", stats.num_accepted_tokens, " accepted (", std::lround(100 * rate),
             " %); decoding ", gain.str(), " times as fast");
}

}  // namespace lmdeploy
