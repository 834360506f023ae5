// Looking words up, whole or from the left.
#include "lmdeploy/text/model/word_models.h"

#include <span>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

ByteTrie make_trie(const Vocabulary& vocabulary, std::string_view prefix) {
  std::vector<std::pair<std::string_view, int>> entries;
  for (int id = 0; id < vocabulary.num_ids(); ++id) {
    std::string_view text = vocabulary.text(id);
    if (!text.starts_with(prefix)) continue;
    text.remove_prefix(prefix.size());
    entries.emplace_back(text, id);
  }
  return ByteTrie(std::move(entries));
}

size_t num_chars(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
  return count;
}

int require_unk(std::optional<int> unk_id, std::string_view word) {
  if (!unk_id)
    throw Error(ErrorCode::kInvalidData, cat("encode: the word \"", repair_utf8(word.substr(0, 60)),
                                             "\" is not in the vocabulary, nor is an unk_token"));
  return *unk_id;
}

}  // namespace

WordPieceModel::WordPieceModel(const Vocabulary& vocabulary, const WordPieceOptions& options)
    : first_(make_trie(vocabulary, "")),
      continuing_(make_trie(vocabulary, options.continuing_prefix)),
      options_(options) {}

void WordPieceModel::encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const {
  if (word.empty() || scratch.cache.find(word, ids)) return;
  const size_t first = ids.size();
  if (num_chars(word) > options_.max_chars || !append_pieces(word, ids)) {
    ids.resize(first);
    ids.push_back(require_unk(options_.unk_id, word));
  }
  scratch.cache.put(word, std::span(ids).subspan(first));
}

bool WordPieceModel::append_pieces(std::string_view word, std::vector<int>& ids) const {
  for (size_t at = 0; at < word.size();) {
    const ByteTrie::Match piece = (at == 0 ? first_ : continuing_).longest(word.substr(at));
    if (piece.size == 0) return false;
    ids.push_back(piece.value);
    at += piece.size;
  }
  return true;
}

void WordLevelModel::encode(std::string_view word, EncodeScratch&, std::vector<int>& ids) const {
  if (word.empty()) return;
  const auto id = vocabulary_.find(word);
  ids.push_back(id ? *id : require_unk(unk_id_, word));
}

}  // namespace lmdeploy
