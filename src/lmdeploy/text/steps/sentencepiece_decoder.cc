// Source: SentencePieceProcessor::Decode of SentencePiece 0.1.97.
#include "lmdeploy/text/steps/sentencepiece_decoder.h"

#include <algorithm>

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/byte_fallback.h"
#include "lmdeploy/text/unicode/pattern.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kMetaspace = "\u2581";

struct DecodingRules {
  std::string unk_piece, unk_surface;
  bool bytes = false;                // <0xHH> stands for a byte
  bool drop_first_space = false;     // the "▁" where the text begins
  bool drop_leading_spaces = false;  // of each token until there is text
};

// The bytes of a run, character by character. A byte that is part of none becomes one U+FFFD.
class ByteRun {
 public:
  void push(char byte, std::string& out) {
    held_.push_back(byte);
    while (!held_.empty() && !may_become_char()) take(out);
  }
  void finish(std::string& out) {
    while (!held_.empty()) take(out);
  }

 private:
  size_t wanted() const {
    const auto lead = static_cast<uint8_t>(held_[0]);
    return lead < 0x80 ? 1 : lead < 0xC2 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 1;
  }
  // Whether more bytes could complete the first character. It is enough that all after the first are
  // continuation bytes: a wrong one is found when the character is complete.
  bool may_become_char() const {
    return held_.size() < wanted() && std::all_of(held_.begin() + 1, held_.end(), [](char c) {
             return (static_cast<uint8_t>(c) & 0xC0) == 0x80;
           });
  }
  // One character, or U+FFFD for the first byte.
  void take(std::string& out) {
    const size_t size = wanted();
    const std::string_view first = std::string_view(held_).substr(0, size);
    const bool good = first.size() == size && is_utf8(first);
    out.append(good ? first : kReplacementChar);
    held_.erase(0, good ? size : 1);
  }

  std::string held_;  // at most 4 bytes
};

class SentencePieceStage : public DecodeStage {
 public:
  SentencePieceStage(const DecodingRules& rules, DecodeStage& next) : rules_(rules), next_(next) {}

  void push(std::string_view part, bool ends) override {
    token_.append(part);
    if (!ends) return;
    std::string text;
    append_text(token_, text);
    token_.clear();
    has_text_ |= !text.empty();
    if (!text.empty()) next_.push(text, /*ends=*/false);
  }
  void finish() override {
    std::string text;
    bytes_.finish(text);
    next_.push(text, /*ends=*/true);
    next_.finish();
  }

 private:
  void append_text(std::string_view token, std::string& out) {
    const auto byte = rules_.bytes ? fallback_byte(token) : std::nullopt;
    if (byte && token == fallback_spelling(static_cast<uint8_t>(*byte))) return bytes_.push(*byte, out);
    bytes_.finish(out);
    has_text_ |= !out.empty();
    if (first_space_dropped_ || has_text_) at_begin_ = false;
    if (token == rules_.unk_piece) return void(out.append(rules_.unk_surface));
    if (at_begin_ && (rules_.drop_first_space || rules_.drop_leading_spaces) &&
        token.starts_with(kMetaspace)) {
      token.remove_prefix(kMetaspace.size());
      first_space_dropped_ = !rules_.drop_leading_spaces;
    }
    for (size_t at = token.find(kMetaspace); at != std::string_view::npos; at = token.find(kMetaspace)) {
      out.append(token.substr(0, at)).push_back(' ');
      token.remove_prefix(at + kMetaspace.size());
    }
    out.append(token);
  }

  const DecodingRules& rules_;
  DecodeStage& next_;
  std::string token_;
  ByteRun bytes_;
  bool has_text_ = false;
  bool first_space_dropped_ = false;
  bool at_begin_ = true;
};

class SentencePieceDecoder : public Decoder {
 public:
  explicit SentencePieceDecoder(DecodingRules rules) : rules_(std::move(rules)) {}
  std::unique_ptr<DecodeStage> start(DecodeStage& next) const override {
    return std::make_unique<SentencePieceStage>(rules_, next);
  }
  std::string token_bytes(std::string spelled) const override {
    if (spelled == rules_.unk_piece) return rules_.unk_surface;
    if (const auto byte = rules_.bytes ? fallback_byte(spelled) : std::nullopt) return std::string(1, *byte);
    return replace_all(spelled, *metaspace_, " ");
  }

 private:
  DecodingRules rules_;
  std::unique_ptr<Pattern> metaspace_ = make_literal_pattern(std::string(kMetaspace));
};

}  // namespace

std::unique_ptr<Decoder> make_sentencepiece_step(const SentencePieceFile& file) {
  DecodingRules rules;
  rules.unk_piece = file.pieces[static_cast<size_t>(file.unk_id)].text;
  rules.unk_surface = file.unk_surface;
  rules.bytes = std::any_of(file.pieces.begin(), file.pieces.end(), [](const SentencePiece& piece) {
    return piece.type == SentencePiece::Type::kByte;
  });
  rules.drop_first_space = file.add_dummy_prefix;
  rules.drop_leading_spaces = file.remove_extra_whitespaces;
  return std::make_unique<SentencePieceDecoder>(std::move(rules));
}

}  // namespace lmdeploy
