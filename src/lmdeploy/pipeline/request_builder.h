// From token ids and a GenerationConfig to the engine's request and the rules of its text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"
#include "lmdeploy/pipeline/stop_rules.h"
#include "lmdeploy/pipeline/text_stream.h"
#include "lmdeploy/text/grammar/compile.h"

namespace lmdeploy {

struct PreparedRequest {
  Request request;
  TextStreamOptions text;
};

/// What a model brings to every request.
struct RequestDefaults {
  std::shared_ptr<const Tokenizer> tokenizer;  // or nullptr
  std::vector<int> eos_ids;                    // ascending
  std::vector<std::string> template_stop_words;
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t session_len = 0;
  bool gives_score = false;  // a reward model: it answers nothing
};

/// Immutable; thread-safe.
class RequestBuilder {
 public:
  explicit RequestBuilder(RequestDefaults defaults);

  /// `gen_config` is validated, its ids against the vocabulary too; throws Error(kInvalidArgument). The
  /// prompt must fit(). A max_new_tokens beyond the space left is clamped to it, with a warning.
  PreparedRequest build(std::vector<int> input_ids, const GenerationConfig& gen_config) const;
  /// Throws what build() would.
  void check(const GenerationConfig& gen_config) const;
  /// Of its response_format, compiled now or lately; nullptr when any text will do. Throws as build().
  std::shared_ptr<const TokenGrammar> grammar_of(const GenerationConfig& gen_config) const;
  /// There must be room for one new token at least, where any is wanted.
  bool fits(size_t num_prompt_tokens, const GenerationConfig& gen_config) const {
    const int64_t wanted = gen_config.max_new_tokens == 0 ? 0 : 1;
    return static_cast<int64_t>(num_prompt_tokens) + wanted <= defaults_.session_len;
  }
  /// What a caller whose prompt does not fit is told.
  Response rejection(size_t num_prompt_tokens) const;
  int64_t session_len() const { return defaults_.session_len; }

 private:
  void check_fields(const GenerationConfig& gen_config) const;
  void check_vocabulary(const GenerationConfig& gen_config) const;
  void check_words(const GenerationConfig& gen_config) const;
  SamplingParams sampling(const GenerationConfig& gen_config) const;
  void set_stop_rules(const GenerationConfig& gen_config, PreparedRequest& prepared) const;
  int64_t clamp_new_tokens(const GenerationConfig& gen_config, size_t num_prompt_tokens) const;

  RequestDefaults defaults_;
  std::shared_ptr<grammar::GrammarCache> grammars_;  // thread-safe
};

}  // namespace lmdeploy
