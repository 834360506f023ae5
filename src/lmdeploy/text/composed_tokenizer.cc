// Encoding and decoding with the parts that a file describes.
#include "lmdeploy/text/composed_tokenizer.h"

#include <algorithm>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy {

std::optional<int> TokenizerParts::find_token(std::string_view text) const {
  const auto added = added_tokens.find(text);
  return added ? added : vocabulary.find(text);
}

void TokenizerParts::add_token(const AddedToken& token, std::optional<int> id) {
  if (token.content.empty()) return;
  const std::optional<int> known = find_token(token.content);
  const int next = vocabulary.num_tokens() + num_new_tokens;
  if (!known) ++num_new_tokens;
  added_tokens.add(token, id ? *id : known.value_or(next));
}

/// Scratch memory for the time of one call; many threads may encode at once.
class ComposedTokenizer::ScratchLease {
 public:
  explicit ScratchLease(const ComposedTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.scratch_mutex_);
    if (!owner_.idle_scratch_.empty()) {
      scratch_ = std::move(owner_.idle_scratch_.back());
      owner_.idle_scratch_.pop_back();
    }
  }
  ~ScratchLease() {
    if (scratch_ == nullptr) return;
    const std::lock_guard lock(owner_.scratch_mutex_);
    owner_.idle_scratch_.push_back(std::move(scratch_));
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;

  EncodeScratch& get() {
    if (scratch_ == nullptr) scratch_ = std::make_unique<EncodeScratch>();
    return *scratch_;
  }

 private:
  const ComposedTokenizer& owner_;
  std::unique_ptr<EncodeScratch> scratch_;
};

/// Runs token spellings through the decoder's steps.
class ComposedTokenizer::Stream : public DecodeStream {
 public:
  Stream(const ComposedTokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
    DecodeStage* next = &output_;
    for (size_t i = tokenizer.parts_.decoder.size(); i-- > 0;) {
      stages_.push_back(tokenizer.parts_.decoder[i]->start(*next));
      next = stages_.back().get();
    }
    first_ = next;
  }

  void push(int id, std::string& out) override {
    if (skip_special_tokens_ && tokenizer_.is_special(id)) return;
    const std::string_view spelled = tokenizer_.decoded_spelling(id);
    if (spelled.empty()) return;
    output_.out = &out;
    first_->push(spelled, /*ends=*/true);
  }
  void finish(std::string& out) override {
    output_.out = &out;
    first_->finish();
  }

 private:
  struct Output : DecodeStage {
    void push(std::string_view part, bool) override { out->append(part); }
    void finish() override {}
    std::string* out = nullptr;
  };

  const ComposedTokenizer& tokenizer_;
  bool skip_special_tokens_;
  Output output_;
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last step first
  DecodeStage* first_ = nullptr;
};

ComposedTokenizer::ComposedTokenizer(TokenizerParts parts) : parts_(std::move(parts)) {
  const auto normalize = [&](const std::string& content) {
    return parts_.normalizer == nullptr ? content : parts_.normalizer->apply(content);
  };
  parts_.added_tokens.build(normalize);
  kinds_.resize(static_cast<size_t>(std::max(parts_.vocabulary.num_ids(), parts_.added_tokens.max_id() + 1)));
  for (const auto& [id, token] : parts_.added_tokens.by_id()) {
    uint8_t& kind = kinds_[static_cast<size_t>(id)];
    kind |= kAdded;
    if (!token.normalized) continue;
    std::string spelling = normalize(token.content);
    if (spelling == token.content) continue;
    kind |= kRespelled;
    normalized_spellings_.emplace(id, std::move(spelling));
  }
  for (int id = 0; id < vocab_size(); ++id)
    if (parts_.added_tokens.is_special(decoded_spelling(id))) kinds_[static_cast<size_t>(id)] |= kSpecial;
}

ComposedTokenizer::~ComposedTokenizer() = default;

std::vector<int> ComposedTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  if (!is_utf8(text)) return encode(repair_utf8(text), options);
  const bool parse_special = parts_.special_text != SpecialText::kAlwaysPlain &&
                             options.parse_special.value_or(parts_.special_text == SpecialText::kParsed);
  std::vector<int> ids;
  if (options.add_special_tokens) ids = parts_.prefix_ids;
  ScratchLease scratch(*this);
  for (const Section section : parts_.added_tokens.split(text, /*normalized=*/false, parse_special)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      encode_section(slice(text, section.span), section.span.begin == 0, parse_special, scratch.get(), ids);
    }
  }
  if (options.add_special_tokens) ids.insert(ids.end(), parts_.suffix_ids.begin(), parts_.suffix_ids.end());
  return ids;
}

// Text between added tokens: normalized, and cut at those that are looked for in normalized text.
void ComposedTokenizer::encode_section(std::string_view text, bool at_start, bool parse_special,
                                       EncodeScratch& scratch, std::vector<int>& ids) const {
  std::string normalized(text);
  if (parts_.normalizer != nullptr) normalized = parts_.normalizer->apply(std::move(normalized), at_start);
  for (const Section section : parts_.added_tokens.split(normalized, /*normalized=*/true, parse_special)) {
    if (section.id >= 0) {
      ids.push_back(section.id);
    } else {
      encode_plain(std::string(slice(normalized, section.span)), at_start && section.span.begin == 0, scratch,
                   ids);
    }
  }
}

void ComposedTokenizer::encode_plain(std::string text, bool at_start, EncodeScratch& scratch,
                                     std::vector<int>& ids) const {
  Words words;
  words.text = std::move(text);
  words.spans = {{0, words.text.size()}};
  words.at_start = at_start;
  for (const auto& step : parts_.pre_tokenizer.steps) step->apply(words);
  for (const Span word : words.spans) parts_.model->encode(slice(words.text, word), scratch, ids);
}

std::string ComposedTokenizer::decode(std::span<const int> ids, bool skip_special_tokens) const {
  Stream stream(*this, skip_special_tokens);
  std::string text;
  text.reserve(ids.size() * 4);
  for (const int id : ids) stream.push(id, text);
  stream.finish(text);
  return text;
}

std::unique_ptr<DecodeStream> ComposedTokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<Stream>(*this, skip_special_tokens);
}

std::string_view ComposedTokenizer::token_text(int id) const {
  if (!(kind_of(id) & kAdded)) return parts_.vocabulary.text(id);
  return parts_.added_tokens.by_id().at(id).content;
}

std::string_view ComposedTokenizer::decoded_spelling(int id) const {
  return kind_of(id) & kRespelled ? std::string_view(normalized_spellings_.at(id)) : token_text(id);
}

std::string ComposedTokenizer::token_bytes(int id) const {
  const std::string_view spelled = decoded_spelling(id);
  if (spelled.empty() || is_special(id)) return {};
  std::string bytes(spelled);
  for (const auto& step : parts_.decoder) bytes = step->token_bytes(std::move(bytes));
  return bytes;
}

bool ComposedTokenizer::is_special(int id) const { return (kind_of(id) & kSpecial) != 0; }

std::vector<int> ComposedTokenizer::end_ids() const {
  std::vector<int> ids = parts_.end_ids;
  if (parts_.eos_id) ids.push_back(*parts_.eos_id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

}  // namespace lmdeploy
