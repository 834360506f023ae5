// From the engine's token ids to the caller's pieces: text, stop words, counts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

struct TextStreamOptions {
  std::vector<std::string> stop_words = {};  // those to be found in the text
  std::vector<int> stop_ids = {};            // as the engine has them, ascending
  bool skip_special_tokens = true;
  bool include_stop = false;   // the stop word or stop id is part of the answer
  int64_t min_new_tokens = 0;  // stop words count from this token on
  int64_t vocab_size = 0;      // columns of a row of logits
  int64_t hidden_size = 0;     // of a row of hidden states
  bool has_ppl = false;        // the prompt is scored
};

/// One answer. Feed it each RequestOutput in order; not thread-safe.
class TextStream {
 public:
  /// `tokenizer` may be nullptr: then text stays empty.
  TextStream(std::shared_ptr<const Tokenizer> tokenizer, TextStreamOptions options);

  /// What the output adds. After the piece whose finish_reason is set there is nothing more to push.
  Response push(RequestOutput output);
  bool finished() const { return finished_; }
  /// A stop word ended it: the engine does not know and must be told.
  bool stopped_by_text() const { return matcher_.stopped(); }

 private:
  std::string token_text(int id);
  std::string closing_text();
  bool is_included_stop_id(const RequestOutput& output) const;
  void keep_tokens(RequestOutput& output, size_t count) const;
  void move_results(RequestOutput& output, Response& piece) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  TextStreamOptions options_;
  std::optional<Detokenizer> detokenizer_;
  StopMatcher matcher_;
  int64_t num_tokens_ = 0;
  bool finished_ = false;
};

}  // namespace lmdeploy
