// Finding added tokens in text: a trie, then the conditions of each token.
#include "lmdeploy/text/steps/added_tokens.h"

#include <algorithm>

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/unicode/unicode.h"

namespace lmdeploy {

int32_t TextTrie::child(int32_t node, uint8_t byte) const {
  int32_t found = nodes_[static_cast<size_t>(node)].first_child;
  while (found >= 0 && nodes_[static_cast<size_t>(found)].byte != byte)
    found = nodes_[static_cast<size_t>(found)].next_sibling;
  return found;
}

size_t TextTrie::next_start(std::string_view text, size_t from) const {
  if (empty_) return text.size();
  while (from < text.size() && roots_[static_cast<uint8_t>(text[from])] < 0) ++from;
  return from;
}

void TextTrie::add(std::string_view text, int value) {
  if (text.empty()) return;
  if (empty_) std::fill(std::begin(roots_), std::end(roots_), -1);
  empty_ = false;
  const auto new_node = [&](uint8_t byte) {
    nodes_.push_back({-1, -1, -1, byte});
    return static_cast<int32_t>(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<uint8_t>(text[0])];
  if (root < 0) root = new_node(static_cast<uint8_t>(text[0]));
  int32_t node = root;
  for (const char c : text.substr(1)) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t next = child(node, byte);
    if (next < 0) {
      next = new_node(byte);
      nodes_[static_cast<size_t>(next)].next_sibling = nodes_[static_cast<size_t>(node)].first_child;
      nodes_[static_cast<size_t>(node)].first_child = next;
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].value = value;
}

TextTrie::Match TextTrie::longest(std::string_view text, size_t at) const {
  Match best;
  if (empty_) return best;
  int32_t node = roots_[static_cast<uint8_t>(text[at])];
  for (size_t size = 1; node >= 0; ++size) {
    const int32_t value = nodes_[static_cast<size_t>(node)].value;
    if (value >= 0) best = {size, value};
    if (at + size == text.size()) break;
    node = child(node, static_cast<uint8_t>(text[at + size]));
  }
  return best;
}

void AddedTokens::add(const AddedToken& token, int id) {
  by_id_[id] = token;
  by_content_[token.content] = id;
  if (token.special) {
    special_.insert(token.content);
    special_beginnings_.set(token.content.empty() ? 0 : static_cast<uint8_t>(token.content[0]));
  }
  max_id_ = std::max(max_id_, id);
}

void AddedTokens::build(const std::function<std::string(const std::string&)>& normalize) {
  std::vector<int> ids;  // in order, so that of two equal normalized forms the later always wins
  for (const auto& [id, token] : by_id_) ids.push_back(id);
  std::sort(ids.begin(), ids.end());
  for (const int id : ids) {
    const AddedToken& token = by_id_.at(id);
    if (token.normalized) {
      normalized_.add(normalize(token.content), id);
    } else {
      raw_.add(token.content, id);
    }
  }
}

std::optional<int> AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? std::nullopt : std::optional<int>(found->second);
}

namespace {

bool stands_alone(std::string_view text, Span match) {
  const bool word_before =
      match.begin > 0 && is_word_char(decode_utf8(text, last_char_begin(text.substr(0, match.begin))).code);
  const bool word_after = match.end < text.size() && is_word_char(decode_utf8(text, match.end).code);
  return !word_before && !word_after;
}

}  // namespace

std::vector<Section> AddedTokens::split(std::string_view text, bool normalized, bool parse_special) const {
  const TextTrie& trie = normalized ? normalized_ : raw_;
  std::vector<Section> sections;
  size_t from = 0;  // of the text that belongs to no section yet
  for (size_t at = trie.next_start(text, 0); at < text.size(); at = trie.next_start(text, at)) {
    const TextTrie::Match found = trie.longest(text, at);
    if (found.size == 0) {
      ++at;
      continue;
    }
    Span match = {at, at + found.size};
    at = match.end;  // a match that is then turned down is not searched again for shorter ones
    const AddedToken& token = by_id_.at(found.value);
    if (!parse_special && is_special(token.content)) continue;
    if (token.single_word && !stands_alone(text, match)) continue;
    if (token.lstrip)
      match.begin = std::max(match.begin - trailing_white_space(text.substr(0, match.begin)), from);
    if (token.rstrip) match.end += leading_white_space(text.substr(match.end));
    if (from < match.begin) sections.push_back({{from, match.begin}});
    if (match.begin < match.end)
      sections.push_back({match, found.value});  // else its text went to the one before
    from = match.end;
  }
  if (from < text.size()) sections.push_back({{from, text.size()}});
  return sections;
}

}  // namespace lmdeploy
