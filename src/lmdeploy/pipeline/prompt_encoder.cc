#include "lmdeploy/pipeline/prompt_encoder.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/pipeline/messages.h"

namespace lmdeploy {
namespace {

bool adds_bos(const Tokenizer& tokenizer) {
  const std::vector<int> ids = tokenizer.encode("a");
  return tokenizer.bos_id() && !ids.empty() && ids.front() == *tokenizer.bos_id();
}

RenderOptions render_options(const RunOptions& options) {
  if (!options.tools.is_null() && !options.tools.is_array())
    throw Error(ErrorCode::kInvalidArgument,
                cat("tools: found ", json_kind(options.tools), "; expected an array of functions"));
  RenderOptions render;
  render.add_generation_prompt = options.add_generation_prompt;
  render.continue_final_message = options.continue_final_message;
  render.tools = options.tools;
  render.extra = options.template_extra;
  return render;
}

}  // namespace

PromptEncoder::PromptEncoder(std::shared_ptr<const Tokenizer> tokenizer,
                             std::shared_ptr<const ChatTemplate> chat_template, int64_t vocab_size)
    : tokenizer_(std::move(tokenizer)),
      chat_template_(std::move(chat_template)),
      vocab_size_(vocab_size),
      template_writes_bos_(chat_template_ != nullptr && chat_template_->name() == "jinja") {
  if (tokenizer_) tokenizer_adds_bos_ = adds_bos(*tokenizer_);
}

std::vector<int> PromptEncoder::encode(const Prompt& prompt, const RunOptions& options) const {
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) {
    check_ids(*ids);
    return *ids;
  }
  return encode_text(prompt, render(prompt, options), options);
}

PromptPreview PromptEncoder::preview(const Prompt& prompt, const RunOptions& options) const {
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt)) {
    check_ids(*ids);
    return {tokenizer_ ? tokenizer_->decode(*ids, /*skip_special_tokens=*/false) : "", *ids};
  }
  std::string text = render(prompt, options);
  std::vector<int> ids = encode_text(prompt, text, options);
  return {std::move(text), std::move(ids)};
}

// `text`: what `prompt` has been rendered to.
std::vector<int> PromptEncoder::encode_text(const Prompt& prompt, const std::string& text,
                                            const RunOptions& options) const {
  const bool is_raw = std::holds_alternative<std::string>(prompt) && !options.do_preprocess;
  std::vector<int> ids = is_raw ? encode_raw(text) : encode_rendered(text);
  check_ids(ids);
  return ids;
}

std::string PromptEncoder::render(const Prompt& prompt, const RunOptions& options) const {
  if (std::holds_alternative<std::vector<int>>(prompt))
    throw Error(ErrorCode::kInvalidArgument,
                "render: the prompt is token ids, which go past the chat template");
  require_text_parts();
  if (const auto* messages = std::get_if<Json>(&prompt)) return render_messages(*messages, options);
  return render_text(std::get<std::string>(prompt), options);
}

std::vector<int> PromptEncoder::encode_continuation(const std::string& text) const {
  require_text_parts();
  std::vector<int> ids =
      tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = std::nullopt});
  check_ids(ids);
  return ids;
}

std::string PromptEncoder::render_text(const std::string& prompt, const RunOptions& options) const {
  if (!options.do_preprocess) return prompt;
  return chat_template_->render_prompt(prompt, render_options(options));
}

std::string PromptEncoder::render_messages(const Json& messages, const RunOptions& options) const {
  return chat_template_->render(normalize_messages(messages), render_options(options));
}

/// The tokenizer's own rules, but for a BOS that the text brings along already.
std::vector<int> PromptEncoder::encode_raw(const std::string& text) const {
  std::vector<int> ids = tokenizer_->encode(text);
  if (tokenizer_adds_bos_ && ids.size() > 1 && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

std::vector<int> PromptEncoder::encode_rendered(const std::string& text) const {
  std::vector<int> ids = tokenizer_->encode(text, {.add_special_tokens = false, .parse_special = true});
  const bool wants_bos = tokenizer_adds_bos_ && !template_writes_bos_;
  if (wants_bos && (ids.empty() || ids.front() != *tokenizer_->bos_id()))
    ids.insert(ids.begin(), *tokenizer_->bos_id());
  return ids;
}

void PromptEncoder::check_ids(const std::vector<int>& ids) const {
  if (ids.empty())
    throw Error(ErrorCode::kInvalidArgument, "prompt: there are no token ids in it; expected at least one");
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size_) continue;
    throw Error(ErrorCode::kInvalidArgument, cat("prompt: token id ", ids[i], " at position ", i,
                                                 " is outside the model's vocabulary of ", vocab_size_));
  }
}

void PromptEncoder::require_text_parts() const {
  if (tokenizer_ == nullptr)
    throw Error(
        ErrorCode::kUnsupported,
        "prompt: the checkpoint has no tokenizer, so prompts must be token ids (or put its tokenizer.json "
        "beside the weights)");
  LMD_CHECK(chat_template_ != nullptr);
}

}  // namespace lmdeploy
