// The steps of decoders, each as a recipe (Decoder) and as a running step (DecodeStage).
#include "lmdeploy/text/steps/decoder_steps.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/byte_fallback.h"
#include "lmdeploy/text/steps/byte_level.h"

namespace lmdeploy {
namespace {

class Stage : public DecodeStage {
 public:
  explicit Stage(DecodeStage& next) : next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  DecodeStage& next_;
};

// Steps that need to see a whole token.
class WholeTokenStage : public Stage {
 public:
  using Stage::Stage;
  void push(std::string_view part, bool ends) final {
    if (ends && token_.empty()) return token(part);
    token_.append(part);
    if (!ends) return;
    token(token_);
    token_.clear();
  }

 private:
  virtual void token(std::string_view whole) = 0;
  std::string token_;
};

// ByteLevel: all tokens become one, of the bytes that their characters stand for.

std::string bytes_or_same(std::string_view spelled) {
  return byte_level_bytes(spelled).value_or(std::string(spelled));
}

class ByteLevelStage : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override {
    std::string text;
    bytes_.finish(text);
    next_.push(text, /*ends=*/true);
    next_.finish();
  }

 private:
  void token(std::string_view whole) override {
    token_bytes_.clear();
    text_.clear();
    if (!append_byte_level_bytes(token_bytes_, whole)) token_bytes_.assign(whole);
    bytes_.push(token_bytes_, text_);
    if (!text_.empty()) next_.push(text_, /*ends=*/false);
  }
  Utf8Assembler bytes_;
  std::string token_bytes_, text_;  // of the token at hand
};

class ByteLevelDecoder : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<ByteLevelStage>(next);
  }
  std::string token_bytes(std::string spelled) const override { return bytes_or_same(spelled); }
};

// ByteFallback: runs of <0xHH> become their bytes' text, or one U+FFFD a byte when that is no UTF-8.

class ByteFallbackStage : public WholeTokenStage {
 public:
  using WholeTokenStage::WholeTokenStage;
  void finish() override {
    flush();
    next_.finish();
  }

 private:
  void token(std::string_view whole) override {
    if (const auto byte = fallback_byte(whole)) return run_.push_back(*byte);
    flush();
    next_.push(whole, /*ends=*/true);
  }
  void flush() {
    if (run_.empty()) return;
    if (is_utf8(run_)) {
      next_.push(run_, /*ends=*/true);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) next_.push(kReplacementChar, /*ends=*/true);
    }
    run_.clear();
  }
  std::string run_;
};

class ByteFallbackDecoder : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<ByteFallbackStage>(next);
  }
  std::string token_bytes(std::string spelled) const override {
    const auto byte = fallback_byte(spelled);
    return byte ? std::string(1, *byte) : spelled;
  }
};

// Fuse: all tokens become one.

class FuseStage : public Stage {
 public:
  using Stage::Stage;
  void push(std::string_view part, bool) override {
    if (!part.empty()) next_.push(part, /*ends=*/false);
  }
  void finish() override {
    next_.push({}, /*ends=*/true);
    next_.finish();
  }
};

class FuseDecoder : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<FuseStage>(next);
  }
  std::string token_bytes(std::string spelled) const override { return spelled; }
};

// Replace.

// A literal, replaced as the parts come: only what may begin a match is held back.
class ReplaceLiteralStage : public Stage {
 public:
  ReplaceLiteralStage(const std::string& literal, const std::string& content, DecodeStage& next)
      : Stage(next), literal_(literal), content_(content) {}

  void push(std::string_view part, bool ends) override {
    if (held_.empty() && part.find(literal_[0]) == std::string_view::npos) {
      if (ends || !part.empty()) next_.push(part, ends);
      return;
    }
    held_.append(part);
    out_.clear();
    size_t at = 0;
    while (at < held_.size()) {
      const std::string_view rest = std::string_view(held_).substr(at);
      if (rest.starts_with(literal_)) {
        out_.append(content_);
        at += literal_.size();
      } else if (!ends && std::string_view(literal_).starts_with(rest)) {
        break;
      } else {
        const size_t copied = std::min(rest.find(literal_[0], 1), rest.size());
        out_.append(rest.substr(0, copied));
        at += copied;
      }
    }
    held_.erase(0, at);
    if (ends || !out_.empty()) next_.push(out_, ends);
  }

 private:
  const std::string& literal_;  // not empty
  const std::string& content_;
  std::string held_, out_;
};

class ReplaceLiteralDecoder : public Decoder {
 public:
  ReplaceLiteralDecoder(std::string literal, std::string content)
      : literal_(std::move(literal)),
        content_(std::move(content)),
        pattern_(make_literal_pattern(literal_)) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<ReplaceLiteralStage>(literal_, content_, next);
  }
  std::string token_bytes(std::string spelled) const override {
    return replace_all(spelled, *pattern_, content_);
  }

 private:
  std::string literal_, content_;
  std::unique_ptr<Pattern> pattern_;
};

class ReplacePatternStage : public WholeTokenStage {
 public:
  ReplacePatternStage(const Pattern& pattern, const std::string& content, DecodeStage& next)
      : WholeTokenStage(next), pattern_(pattern), content_(content) {}

 private:
  void token(std::string_view whole) override {
    next_.push(replace_all(whole, pattern_, content_), /*ends=*/true);
  }
  const Pattern& pattern_;
  const std::string& content_;
};

class ReplacePatternDecoder : public Decoder {
 public:
  ReplacePatternDecoder(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<ReplacePatternStage>(*pattern_, content_, next);
  }
  std::string token_bytes(std::string spelled) const override {
    return replace_all(spelled, *pattern_, content_);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

// Strip: up to `left` and `right` copies of one character go at the ends of each token.

class StripStage : public Stage {
 public:
  StripStage(const std::string& content, int left, int right, DecodeStage& next)
      : Stage(next), content_(content), left_(left), right_(right), left_here_(left) {}

  void push(std::string_view part, bool ends) override {
    if (held_.empty() && left_here_ == 0 && right_ == 0) {
      if (ends) left_here_ = left_;
      return next_.push(part, ends);
    }
    held_.append(part);
    for (; left_here_ > 0 && held_.starts_with(content_); --left_here_) held_.erase(0, content_.size());
    if (!held_.empty()) left_here_ = 0;  // parts are whole characters, and so is content_
    if (ends) return end_token();
    if (left_here_ > 0 || right_ > 0) return;  // the front or the end is still open
    next_.push(held_, /*ends=*/false);
    held_.clear();
  }

 private:
  void end_token() {
    for (int i = 0; i < right_ && held_.ends_with(content_); ++i)
      held_.resize(held_.size() - content_.size());
    next_.push(held_, /*ends=*/true);
    held_.clear();
    left_here_ = left_;
  }

  const std::string& content_;
  int left_, right_;
  int left_here_;  // copies that may still go at the front of the current token
  std::string held_;
};

class StripDecoder : public Decoder {
 public:
  StripDecoder(std::string content, int left, int right)
      : content_(std::move(content)), left_(left), right_(right) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<StripStage>(content_, left_, right_, next);
  }
  std::string token_bytes(std::string spelled) const override { return spelled; }

 private:
  std::string content_;
  int left_, right_;
};

// Metaspace: "▁" is a space, but none in the first token when one was put in front of the text.

class MetaspaceStage : public Stage {
 public:
  MetaspaceStage(const Pattern& replacement, bool drop_in_first, DecodeStage& next)
      : Stage(next), replacement_(replacement), drop_(drop_in_first) {}

  void push(std::string_view part, bool ends) override {
    next_.push(replace_all(part, replacement_, drop_ ? "" : " "), ends);
    if (ends) drop_ = false;
  }

 private:
  const Pattern& replacement_;
  bool drop_;
};

class MetaspaceDecoder : public Decoder {
 public:
  MetaspaceDecoder(std::string replacement, bool drop_in_first)
      : replacement_(make_literal_pattern(std::move(replacement))), drop_in_first_(drop_in_first) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<MetaspaceStage>(*replacement_, drop_in_first_, next);
  }
  std::string token_bytes(std::string spelled) const override {
    return replace_all(spelled, *replacement_, " ");
  }

 private:
  std::unique_ptr<Pattern> replacement_;
  bool drop_in_first_;
};

// BPEDecoder: the end-of-word suffix is a space, but none in the last token.

class WordSuffixStage : public WholeTokenStage {
 public:
  WordSuffixStage(const Pattern& suffix, DecodeStage& next) : WholeTokenStage(next), suffix_(suffix) {}
  void finish() override {
    if (last_) next_.push(replace_all(*last_, suffix_, ""), /*ends=*/true);
    next_.finish();
  }

 private:
  void token(std::string_view whole) override {
    if (last_) next_.push(replace_all(*last_, suffix_, " "), /*ends=*/true);
    last_ = std::string(whole);
  }
  const Pattern& suffix_;
  std::optional<std::string> last_;
};

class WordSuffixDecoder : public Decoder {
 public:
  explicit WordSuffixDecoder(std::string suffix) : suffix_(make_literal_pattern(std::move(suffix))) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<WordSuffixStage>(*suffix_, next);
  }
  std::string token_bytes(std::string spelled) const override { return replace_all(spelled, *suffix_, " "); }

 private:
  std::unique_ptr<Pattern> suffix_;
};

// WordPiece: tokens are joined by spaces, but for those that continue a word. CTC: a token that repeats the
// one before it is left out, and so is padding.

// Source: decoders/wordpiece.rs of tokenizers 0.21; the order matters.
constexpr std::pair<std::string_view, std::string_view> kWordPieceCleanUps[] = {
    {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
    {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

void replace_literal(std::string& text, std::string_view literal, std::string_view content) {
  if (literal.empty()) return;
  for (size_t at = text.find(literal); at != std::string::npos; at = text.find(literal, at + content.size()))
    text.replace(at, literal.size(), content);
}

void clean_up_token(std::string& token) {
  for (const auto& [found, wanted] : kWordPieceCleanUps) replace_literal(token, found, wanted);
}

class WordPieceStage : public WholeTokenStage {
 public:
  WordPieceStage(const std::string& prefix, bool cleanup, DecodeStage& next)
      : WholeTokenStage(next), prefix_(prefix), cleanup_(cleanup) {}

 private:
  void token(std::string_view whole) override {
    const bool continues = whole.starts_with(prefix_);
    if (!first_ && continues) whole.remove_prefix(prefix_.size());
    std::string text = first_ || continues ? std::string(whole) : cat(" ", whole);
    first_ = false;
    if (cleanup_) clean_up_token(text);
    next_.push(text, /*ends=*/true);
  }
  const std::string& prefix_;
  bool cleanup_;
  bool first_ = true;
};

class WordPieceDecoder : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<WordPieceStage>(prefix_, cleanup_, next);
  }
  std::string token_bytes(std::string spelled) const override {
    std::string text = spelled.starts_with(prefix_) ? spelled.substr(prefix_.size()) : " " + spelled;
    if (cleanup_) clean_up_token(text);
    return text;
  }

 private:
  std::string prefix_;
  bool cleanup_;
};

class CtcDecoder : public Decoder {
 public:
  explicit CtcDecoder(CtcOptions options) : options_(std::move(options)) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override;
  std::string token_bytes(std::string spelled) const override {
    replace_literal(spelled, options_.pad_token, "");
    if (!options_.cleanup) return spelled;
    clean_up_token(spelled);
    replace_literal(spelled, options_.word_delimiter, " ");
    return spelled;
  }

 private:
  CtcOptions options_;
};

class CtcStage : public WholeTokenStage {
 public:
  CtcStage(const CtcDecoder& decoder, DecodeStage& next) : WholeTokenStage(next), decoder_(decoder) {}

 private:
  void token(std::string_view whole) override {
    if (last_ == whole) return;
    last_ = std::string(whole);
    const std::string text = decoder_.token_bytes(*last_);
    if (!text.empty()) next_.push(text, /*ends=*/true);
  }
  const CtcDecoder& decoder_;
  std::optional<std::string> last_;
};

std::unique_ptr<DecodeStage> CtcDecoder::start(DecodeStage& next) const {
  return std::make_unique<CtcStage>(*this, next);
}

// No decoder: tokens are joined by spaces.

class JoinStage : public Stage {
 public:
  using Stage::Stage;
  void push(std::string_view part, bool ends) override {
    if (!at_token_begin_ || first_) {
      next_.push(part, ends);
    } else {
      next_.push(cat(" ", part), ends);
    }
    at_token_begin_ = ends;
    first_ = false;
  }

 private:
  bool first_ = true;
  bool at_token_begin_ = true;
};

class JoinDecoder : public Decoder {
 public:
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<JoinStage>(next);
  }
  std::string token_bytes(std::string spelled) const override { return " " + spelled; }
};

}  // namespace

std::unique_ptr<Decoder> make_byte_level_step() { return std::make_unique<ByteLevelDecoder>(); }
std::unique_ptr<Decoder> make_byte_fallback_step() { return std::make_unique<ByteFallbackDecoder>(); }
std::unique_ptr<Decoder> make_fuse_step() { return std::make_unique<FuseDecoder>(); }
std::unique_ptr<Decoder> make_join_step() { return std::make_unique<JoinDecoder>(); }

std::unique_ptr<Decoder> make_word_piece_step(std::string prefix, bool cleanup) {
  return std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup);
}

std::unique_ptr<Decoder> make_ctc_step(CtcOptions options) {
  return std::make_unique<CtcDecoder>(std::move(options));
}

std::unique_ptr<Decoder> make_replace_step(std::string literal, std::string content) {
  return std::make_unique<ReplaceLiteralDecoder>(std::move(literal), std::move(content));
}

std::unique_ptr<Decoder> make_replace_step(std::unique_ptr<Pattern> pattern, std::string content) {
  return std::make_unique<ReplacePatternDecoder>(std::move(pattern), std::move(content));
}

std::unique_ptr<Decoder> make_strip_step(std::string content, int left, int right) {
  return std::make_unique<StripDecoder>(std::move(content), left, right);
}

std::unique_ptr<Decoder> make_metaspace_step(std::string replacement, bool drop_in_first) {
  return std::make_unique<MetaspaceDecoder>(std::move(replacement), drop_in_first);
}

std::unique_ptr<Decoder> make_word_suffix_step(std::string suffix) {
  return std::make_unique<WordSuffixDecoder>(std::move(suffix));
}

}  // namespace lmdeploy
