// Viterbi over byte offsets. Which of equal paths wins follows the order of comparisons, so that order is
// part of the format: shorter tokens before longer ones, unknown characters last, and only ">" replaces.
// Source: T. Kudo, Subword Regularization, ACL 2018; model.rs of tokenizers 0.21.
#include "lmdeploy/text/model/unigram_model.h"

#include <algorithm>
#include <limits>
#include <span>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

ByteTrie make_trie(const std::vector<UnigramToken>& tokens) {
  std::vector<std::pair<std::string_view, int>> entries;
  entries.reserve(tokens.size());
  for (const UnigramToken& token : tokens) entries.emplace_back(token.text, token.id);
  return ByteTrie(std::move(entries));
}

}  // namespace

UnigramModel::UnigramModel(const std::vector<UnigramToken>& tokens, UnigramOptions options)
    : trie_(make_trie(tokens)), options_(std::move(options)) {
  for (const UnigramToken& token : tokens) {
    const auto index = static_cast<size_t>(token.id);
    if (index >= scores_.size()) scores_.resize(index + 1);
    scores_[index] = token.score;
  }
}

void UnigramModel::encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const {
  if (word.empty() || scratch.cache.find(word, ids)) return;
  const size_t first = ids.size();
  find_best_path(word, scratch);
  append_path(word, scratch, ids);
  scratch.cache.put(word, std::span(ids).subspan(first));
}

void UnigramModel::find_best_path(std::string_view word, EncodeScratch& scratch) const {
  LMD_CHECK(word.size() < std::numeric_limits<uint32_t>::max(), word.size());
  scratch.path.assign(word.size() + 1, {});
  for (size_t begin = 0; begin < word.size();) {
    const size_t char_size = decode_utf8(word, begin).size;
    const bool char_is_token = relax_known(word, begin, char_size, scratch);
    if (!char_is_token) relax_unknown(begin, begin + char_size, scratch);
    begin += char_size;
  }
}

// Continues the path to `begin` by each token that stands there; true when one of them is a single character.
bool UnigramModel::relax_known(std::string_view word, size_t begin, size_t char_size,
                               EncodeScratch& scratch) const {
  const double score_so_far = scratch.path[begin].score;
  bool char_is_token = false;
  uint32_t node = ByteTrie::kRoot;
  for (size_t at = begin; at < word.size(); ++at) {
    node = trie_.step(node, word[at]);
    if (node == ByteTrie::kNone) break;
    const int id = trie_.value(node);
    if (id < 0) continue;
    const size_t end = at + 1;
    const double score = scores_[static_cast<size_t>(id)] + score_so_far;
    EncodeScratch::PathNode& target = scratch.path[end];
    if (target.id < 0 || score > target.score) target = {rounded(score), static_cast<uint32_t>(begin), id};
    char_is_token |= end - begin == char_size;
  }
  return char_is_token;
}

void UnigramModel::relax_unknown(size_t begin, size_t end, EncodeScratch& scratch) const {
  const double score = rounded(options_.unk_score + scratch.path[begin].score);
  EncodeScratch::PathNode& target = scratch.path[end];
  if (target.id >= 0 && score <= target.score) return;
  if (!options_.unk_id)
    throw Error(
        ErrorCode::kInvalidData,
        "encode: the text holds a character that is no token, and the tokenizer's model has no unk_id");
  target = {score, static_cast<uint32_t>(begin), *options_.unk_id};
}

void UnigramModel::append_path(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const {
  scratch.ends.clear();
  for (auto end = static_cast<uint32_t>(word.size()); end > 0; end = scratch.path[end].begin)
    scratch.ends.push_back(end);
  size_t begin = 0, unknown_from = 0;  // unknown text waits from there to `begin`
  for (auto end = scratch.ends.rbegin(); end != scratch.ends.rend(); ++end) {
    const int id = scratch.path[*end].id;
    if (id != options_.unk_id) {
      append_unknown(word.substr(unknown_from, begin - unknown_from), ids);
      ids.push_back(id);
      unknown_from = *end;
    }
    begin = *end;
  }
  append_unknown(word.substr(unknown_from), ids);
}

void UnigramModel::append_unknown(std::string_view run, std::vector<int>& ids) const {
  if (run.empty()) return;
  const ByteTrie::Match token = trie_.longest(run);  // the run may spell the unknown token itself
  if (token.size == run.size()) {
    ids.push_back(token.value);
  } else if (!options_.byte_fallback.append(run, ids)) {
    ids.push_back(*options_.unk_id);
  }
}

}  // namespace lmdeploy
