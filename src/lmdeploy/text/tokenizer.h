// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct EncodeOptions {
  bool add_special_tokens = true;  // what the tokenizer's own rules add: BOS, EOS, ...
  /// Whether the text of special tokens in the input becomes their ids. Unset: yes for tokenizer.json, model
  /// folders and GGUF.
  std::optional<bool> parse_special;
};

/// Immutable after loading; all methods are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `path`: a model folder, a tokenizer.json, or a .gguf. Throws Error(kNotFound | kUnsupported |
  /// kInvalidData).
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  virtual std::vector<int> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  /// Text of all ids at once. Bytes that are no UTF-8 become U+FFFD. An id outside the vocabulary gives no
  /// text.
  virtual std::string decode(std::span<const int> ids, bool skip_special_tokens = true) const = 0;

  /// Ids run from 0 to vocab_size() - 1, added tokens included.
  virtual int vocab_size() const = 0;
  /// The token's text as the vocabulary spells it ("Ġthe", "<|im_end|>"); "" for an unused id.
  virtual std::string_view token_text(int id) const = 0;
  /// The bytes the token stands for in running text; empty for special tokens and unused ids.
  virtual std::string token_bytes(int id) const = 0;
  /// The id whose vocabulary spelling is exactly `text`.
  virtual std::optional<int> token_id(std::string_view text) const = 0;
  virtual bool is_special(int id) const = 0;

  virtual std::optional<int> bos_id() const = 0;
  virtual std::optional<int> eos_id() const = 0;
  /// eos plus end-of-turn ids that the tokenizer files name (GGUF eot/eom ids, tokenizer_config eos).
  virtual std::vector<int> end_ids() const = 0;
  /// The text of BOS, EOS, ... as templates use them; "" when there is none.
  virtual std::string bos_token() const = 0;
  virtual std::string eos_token() const = 0;
  /// The chat template that comes with the tokenizer (tokenizer_config.json, chat_template.jinja, GGUF
  /// metadata); "" when there is none.
  virtual std::string chat_template() const = 0;
};

/// Turns ids that arrive one after another into text, never splitting a character: joined pieces plus
/// finish() equal Tokenizer::decode of all ids. One per stream; not thread-safe.
class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  /// Text that is now certain; may be empty.
  std::string push(std::span<const int> ids);
  /// What was held back (an unfinished character becomes one U+FFFD run as in decode()).
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::vector<int> ids_;  // a window: tokens whose text is not settled, after some that give context
  size_t context_ = 0;    // leading ids of the window whose text has been given out
  std::string given_;     // decode of those
};

/// Finds stop strings in a stream of text, whatever the piece borders; the earliest match in the text wins.
/// Not thread-safe.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stop_words);
  /// Returns the text that can be given out now; text that may begin a stop word is held back. After a match
  /// (stopped() true) everything from the stop word on is dropped (kept up to its end if `include_stop`).
  std::string push(std::string_view text, bool include_stop = false);
  /// The stream ended without a match: what was held back.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stop_words_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace lmdeploy
