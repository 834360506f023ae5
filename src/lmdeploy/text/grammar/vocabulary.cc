#include "lmdeploy/text/grammar/vocabulary.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kLongestToken = 1024;  // bytes; no vocabulary needs longer ones

// Characters of a plain token; nothing for others.
std::optional<size_t> plain_length(std::string_view bytes) {
  if (!is_utf8(bytes)) return std::nullopt;
  size_t count = 0;
  for (const char c : bytes) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x20 || c == '"' || c == '\\') return std::nullopt;
    if ((byte & 0xC0) != 0x80) ++count;
  }
  return count <= kMostPlain ? std::optional(count) : std::nullopt;
}

// `ids` in the order of their bytes.
Trie make_trie(const std::vector<std::string>& bytes, std::vector<int> ids) {
  Trie trie;
  std::vector<size_t> open;  // the path to the last node
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      trie.nodes[open.back()].end = static_cast<uint32_t>(trie.nodes.size());
  };
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string_view text = bytes[static_cast<size_t>(ids[i])];
    const auto differ = std::mismatch(text.begin(), text.end(), last.begin(), last.end()).first;
    close(static_cast<size_t>(differ - text.begin()));
    for (size_t depth = open.size(); depth < text.size(); ++depth) {
      open.push_back(trie.nodes.size());
      trie.nodes.push_back(
          {0, static_cast<uint32_t>(i), static_cast<uint16_t>(depth), static_cast<uint8_t>(text[depth])});
    }
    last = text;
  }
  close(0);
  trie.nodes.push_back({static_cast<uint32_t>(trie.nodes.size()), static_cast<uint32_t>(ids.size()), 0, 0});
  trie.ids = std::move(ids);
  return trie;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> bytes, bool drops_first_space)
    : bytes_(std::move(bytes)), drops_first_space_(drops_first_space) {
  check_bytes();
  for (Bits& bits : plain_) bits.resize(num_words());
  std::vector<int> ids;
  for (size_t id = 0; id < size(); ++id)
    if (!bytes_[id].empty() && bytes_[id].size() <= kLongestToken) ids.push_back(static_cast<int>(id));
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
    return bytes_[static_cast<size_t>(a)] < bytes_[static_cast<size_t>(b)];
  });
  std::vector<int> others;
  for (const int id : ids) {
    const std::string& text = bytes_[static_cast<size_t>(id)];
    longest_ = std::max(longest_, text.size());
    const std::optional<size_t> length = plain_length(text);
    if (!length) others.push_back(id);
    for (size_t count = length.value_or(kMostPlain + 1); count <= kMostPlain; ++count)
      plain_[count][static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  all_ = make_trie(bytes_, std::move(ids));
  not_plain_ = make_trie(bytes_, std::move(others));
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes;
  for (int id = 0; id < tokenizer.vocab_size(); ++id) bytes.push_back(tokenizer.token_bytes(id));
  const auto spaced =
      std::ranges::find_if(bytes, [](const std::string& text) { return text.size() > 1 && text[0] == ' '; });
  const bool drops =
      spaced != bytes.end() &&
      tokenizer.decode(std::array{static_cast<int>(spaced - bytes.begin())}) == spaced->substr(1);
  return std::make_shared<const Vocabulary>(std::move(bytes), drops);
}

std::string_view Vocabulary::bytes(int id) const {
  if (id < 0 || static_cast<size_t>(id) >= size()) return {};
  const std::string& text = bytes_[static_cast<size_t>(id)];
  return text.size() <= kLongestToken ? std::string_view(text) : std::string_view();
}

// Control characters but the newline are always escaped; 0xC0, 0xC1 and 0xF5 and up are in no UTF-8.
void Vocabulary::check_bytes() const {
  std::array<bool, 256> has{};
  for (const std::string& text : bytes_)
    if (text.size() == 1) has[static_cast<uint8_t>(text[0])] = true;
  const auto needed = [](int byte) {
    return byte >= 0x20 && byte != 0x7F && byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
  };
  for (int byte = 0; byte < 256; ++byte)
    if (needed(byte) && !has[static_cast<size_t>(byte)])
      throw Error(ErrorCode::kUnsupported,
                  cat("response_format: no token of the tokenizer is the byte ", byte,
                      " alone; expected a byte-level or byte-fallback vocabulary"));
}

}  // namespace lmdeploy::grammar
