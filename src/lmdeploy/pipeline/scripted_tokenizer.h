// For tests: a tokenizer whose vocabulary is a list of pieces, so that a test says exactly which bytes a
// token has.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

class ScriptedTokenizer : public Tokenizer {
 public:
  struct Piece {
    std::string text;
    bool special = false;
  };
  explicit ScriptedTokenizer(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  /// Longest piece first; text that no piece begins is left out.
  std::vector<int> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<int> ids;
    if (options.add_special_tokens && bos) ids.push_back(*bos);
    while (!text.empty()) {
      const int id = longest_piece(text);
      if (id >= 0) ids.push_back(id);
      text.remove_prefix(id >= 0 ? pieces_[static_cast<size_t>(id)].text.size() : 1);
    }
    return ids;
  }
  std::string decode(std::span<const int> ids, bool skip_special_tokens) const override {
    std::string text;
    const auto stream = decode_stream(skip_special_tokens);
    for (const int id : ids) stream->push(id, text);
    stream->finish(text);
    return text;
  }
  int vocab_size() const override { return static_cast<int>(pieces_.size()); }
  std::string_view token_text(int id) const override { return pieces_.at(static_cast<size_t>(id)).text; }
  std::string token_bytes(int id) const override { return is_special(id) ? "" : std::string(token_text(id)); }
  std::optional<int> token_id(std::string_view text) const override {
    for (size_t i = 0; i < pieces_.size(); ++i)
      if (pieces_[i].text == text) return static_cast<int>(i);
    return std::nullopt;
  }
  bool is_special(int id) const override { return pieces_.at(static_cast<size_t>(id)).special; }
  std::optional<int> bos_id() const override { return bos; }
  std::optional<int> eos_id() const override { return std::nullopt; }
  std::vector<int> end_ids() const override { return ends; }
  std::string bos_token() const override { return bos ? std::string(token_text(*bos)) : ""; }
  std::string eos_token() const override { return ""; }
  std::string chat_template() const override { return ""; }

  std::optional<int> bos;  // encode() puts it in front
  std::vector<int> ends;

 private:
  int longest_piece(std::string_view text) const {
    int best = -1;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const std::string& piece = pieces_[i].text;
      const bool longer = best < 0 || piece.size() > pieces_[static_cast<size_t>(best)].text.size();
      if (text.substr(0, piece.size()) == piece && longer) best = static_cast<int>(i);
    }
    return best;
  }

  std::vector<Piece> pieces_;
};

}  // namespace lmdeploy
