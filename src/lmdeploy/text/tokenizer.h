// Text to token ids and back.
#pragma once

#include <array>
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
  /// folders and GGUF, no for a .model or .tiktoken by itself.
  std::optional<bool> parse_special = std::nullopt;
};

/// Text of ids that arrive one after another: what decode() of all of them gives, in whole characters. One
/// per stream; not thread-safe; must not outlive its tokenizer.
class DecodeStream {
 public:
  virtual ~DecodeStream() = default;
  /// Appends the text that is now certain.
  virtual void push(int id, std::string& out) = 0;
  /// Appends what was held back. The stream is used up.
  virtual void finish(std::string& out) = 0;
};

/// Immutable after loading; all methods are thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// `path`: a model folder, a converted workspace, a tokenizer.json, a SentencePiece .model, a .gguf, or a
  /// .tiktoken (with a tiktoken.json beside it or a known name). Throws Error(kNotFound | kUnsupported |
  /// kInvalidData | kInvalidArgument).
  static std::shared_ptr<const Tokenizer> load(const std::string& path);

  virtual std::vector<int> encode(std::string_view text, const EncodeOptions& options = {}) const = 0;
  /// Text of all ids at once. Bytes that are no UTF-8 become U+FFFD. An id outside the vocabulary gives no
  /// text.
  virtual std::string decode(std::span<const int> ids, bool skip_special_tokens = true) const = 0;
  /// decode() in steps. This default joins token_bytes(), and token_text() of special tokens; a tokenizer
  /// whose text depends on neighbours overrides it.
  virtual std::unique_ptr<DecodeStream> decode_stream(bool skip_special_tokens) const;
  /// What each id adds to the text: joined, the pieces are decode() of all ids. A character that several ids
  /// spell is in the piece of the last one; text that only the end makes certain is in the last piece.
  std::vector<std::string> decode_pieces(std::span<const int> ids, bool skip_special_tokens = true) const;

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
/// finish() equal Tokenizer::decode of all ids. Constant work and memory per id; where the vocabulary falls
/// back to bytes, a run of byte tokens is held until it ends, since one bad byte spoils the whole run. One
/// per stream; moves only; not thread-safe.
class Detokenizer {
 public:
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens);
  /// Text that is now certain; may be empty.
  std::string push(std::span<const int> ids);
  /// What was held back (an unfinished character becomes one U+FFFD run as in decode()).
  std::string finish();

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unique_ptr<DecodeStream> stream_;
};

/// Finds stop strings in a stream of text, whatever the piece borders: the match that begins earliest in the
/// text wins, and the shortest of those that begin together. Empty stop words are ignored. Not thread-safe.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stop_words);
  /// Returns the text that can be given out now; text that may begin a stop word is held back. After a match
  /// (stopped() true) everything from the stop word on is dropped (kept up to its end if `include_stop`).
  std::string push(std::string_view text, bool include_stop = false);
  /// The stream ended: what was held back, up to a stop word that was complete but had an unfinished one to
  /// its left (stopped() true then).
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  std::string take(bool at_end);

  std::vector<std::string> stop_words_;
  std::array<bool, 256> may_begin_{};  // whether a stop word begins with this byte
  std::string held_;
  bool include_stop_ = false;
  bool stopped_ = false;
};

}  // namespace lmdeploy
