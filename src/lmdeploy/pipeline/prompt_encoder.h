// From a caller's prompt (text, messages, ids) to token ids.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/pipeline/pipeline.h"

namespace lmdeploy {

/// Immutable; thread-safe.
class PromptEncoder {
 public:
  /// `tokenizer` and `chat_template` may be nullptr: then prompts must be ids. `vocab_size` is the model's.
  PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer, std::shared_ptr<const ChatTemplate> chat_template,
                int64_t vocab_size);

  /// Throws Error(kInvalidArgument) for a prompt that is malformed or gives no ids, with the template's or
  /// the tokenizer's own reason.
  std::vector<int> encode(const Prompt& prompt, const RunOptions& options) const;
  /// The ids of encode() and their text.
  PromptPreview preview(const Prompt& prompt, const RunOptions& options) const;
  /// The text that encode() turns into ids.
  std::string render(const Prompt& prompt, const RunOptions& options) const;
  /// Text that continues a sequence: no template, nothing added.
  std::vector<int> encode_continuation(const std::string& text) const;

 private:
  std::vector<int> encode_text(const Prompt& prompt, const std::string& text,
                               const RunOptions& options) const;
  std::string render_text(const std::string& prompt, const RunOptions& options) const;
  std::string render_messages(const Json& messages, const RunOptions& options) const;
  std::vector<int> encode_raw(const std::string& text) const;
  std::vector<int> encode_rendered(const std::string& text) const;
  void check_ids(const std::vector<int>& ids) const;
  void require_text_parts() const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> chat_template_;
  int64_t vocab_size_;
  bool template_writes_bos_;  // Jinja templates do where the model wants it; the catalogue leaves it to the
                              // tokenizer
  bool tokenizer_adds_bos_ = false;
};

}  // namespace lmdeploy
