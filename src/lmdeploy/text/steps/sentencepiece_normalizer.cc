// One pass over the text. Source: normalizer.cc of SentencePiece 0.1.97.
#include "lmdeploy/text/steps/sentencepiece_normalizer.h"

#include <optional>

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/byte_trie.h"
#include "lmdeploy/text/steps/charsmap.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kMetaspace = "\u2581";

class SentencePieceNormalizer : public Normalizer {
 public:
  SentencePieceNormalizer(const SentencePieceFile& file, const std::string& where)
      : user_defined_(user_defined_trie(file)),
        space_(file.escape_whitespaces ? kMetaspace : " "),
        prefix_(file.add_dummy_prefix && !file.whitespace_as_suffix),
        suffix_(file.add_dummy_prefix && file.whitespace_as_suffix),
        remove_extra_(file.remove_extra_whitespaces) {
    if (!file.charsmap.empty()) charsmap_.emplace(file.charsmap, where);
  }

  std::string apply(std::string text, bool&) const override {
    std::string_view rest = text;
    if (remove_extra_) skip_leading_spaces(rest);
    if (rest.empty()) return {};
    std::string out;
    out.reserve(text.size() + text.size() / 2);
    if (prefix_) out.append(space_);
    append_normalized(rest, out);
    while (remove_extra_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
    if (suffix_) out.append(space_);
    return out;
  }

 private:
  struct Unit {
    std::string_view text;  // normalized
    size_t size;            // bytes of the input
  };

  static ByteTrie user_defined_trie(const SentencePieceFile& file) {
    std::vector<std::pair<std::string_view, int>> entries;
    for (const SentencePiece& piece : file.pieces)
      if (piece.type == SentencePiece::Type::kUserDefined) entries.emplace_back(piece.text, 0);
    return ByteTrie(std::move(entries));
  }

  // What the text begins with: a user-defined piece, an entry of the map, or a character.
  Unit first_unit(std::string_view text) const {
    if (const size_t size = user_defined_.longest(text).size; size > 0) return {text.substr(0, size), size};
    if (charsmap_)
      if (const auto found = charsmap_->longest(text)) return {found->replacement, found->size};
    const size_t size = decode_utf8(text, 0).size;
    return {text.substr(0, size), size};
  }

  void skip_leading_spaces(std::string_view& text) const {
    while (!text.empty()) {
      const Unit unit = first_unit(text);
      if (unit.text != " ") break;
      text.remove_prefix(unit.size);
    }
  }

  void append_normalized(std::string_view text, std::string& out) const {
    bool after_space = remove_extra_;
    while (!text.empty()) {
      Unit unit = first_unit(text);
      text.remove_prefix(unit.size);
      while (after_space && unit.text.starts_with(' ')) unit.text.remove_prefix(1);
      for (const char c : unit.text) c == ' ' ? void(out.append(space_)) : out.push_back(c);
      if (!unit.text.empty()) after_space = remove_extra_ && unit.text.ends_with(' ');
    }
  }

  ByteTrie user_defined_;
  std::optional<Charsmap> charsmap_;
  std::string_view space_;  // how a space is written
  bool prefix_, suffix_, remove_extra_;
};

}  // namespace

std::unique_ptr<Normalizer> make_sentencepiece_normalizer(const SentencePieceFile& file,
                                                          const std::string& where) {
  return std::make_unique<SentencePieceNormalizer>(file, where);
}

}  // namespace lmdeploy
