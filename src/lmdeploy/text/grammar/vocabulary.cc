#include "lmdeploy/text/grammar/vocabulary.h"

#include <algorithm>
#include <optional>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy::grammar {
namespace {

constexpr size_t kLongestToken = 1024;  // bytes; no vocabulary needs longer ones

struct SliceLength {
  Slice slice = Slice::kAlnum;  // the smallest one that has the whole token
  size_t characters = 0;
};

std::optional<SliceLength> slice_length(std::string_view bytes) {
  if (!is_utf8(bytes)) return std::nullopt;
  SliceLength out;
  for (size_t at = 0; at < bytes.size(); ++out.characters) {
    const Utf8Char c = decode_utf8(bytes, at);
    const std::optional<Slice> slice = slice_of(c.code);
    if (!slice) return std::nullopt;
    out.slice = std::max(out.slice, *slice);
    at += c.size;
  }
  return out.characters <= kMostInSlice ? std::optional(out) : std::nullopt;
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

// Whether half of the tokens that begin with a space lose it when they open a text.
bool drops_space(const Tokenizer& tokenizer, const std::vector<std::string>& bytes) {
  constexpr int kEnough = 200;
  int spaced = 0, dropped = 0;
  for (size_t id = 0; id < bytes.size() && spaced < kEnough; ++id) {
    const bool is_spaced = bytes[id].starts_with(' ') && !bytes[id].starts_with("  ");
    if (!is_spaced) continue;
    ++spaced;
    dropped += !tokenizer.decode(std::array{static_cast<int>(id)}).starts_with(' ');
  }
  return dropped > 0 && 2 * dropped >= spaced;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> bytes, bool drops_first_space)
    : bytes_(std::move(bytes)), drops_first_space_(drops_first_space) {
  note_bytes();
  std::vector<int> ids;
  for (size_t id = 0; id < size(); ++id)
    if (!bytes_[id].empty() && bytes_[id].size() <= kLongestToken) ids.push_back(static_cast<int>(id));
  std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
    return bytes_[static_cast<size_t>(a)] < bytes_[static_cast<size_t>(b)];
  });
  for (const int id : ids) longest_ = std::max(longest_, bytes_[static_cast<size_t>(id)].size());
  for (const Slice slice : kSlices) slices_[static_cast<size_t>(slice)] = make_slice(slice, ids);
  all_ = make_trie(bytes_, std::move(ids));
}

Vocabulary::SliceTokens Vocabulary::make_slice(Slice slice, const std::vector<int>& ids) const {
  SliceTokens out;
  for (Bits& bits : out.tokens) bits.resize(num_words());
  std::vector<int> others;
  for (const int id : ids) {
    const std::string& text = bytes_[static_cast<size_t>(id)];
    const std::optional<SliceLength> length = slice_length(text);
    if (!length || length->slice > slice || !can_spell(text)) {
      others.push_back(id);
      continue;
    }
    for (size_t count = length->characters; count <= kMostInSlice; ++count)
      out.tokens[count][static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  }
  out.others = make_trie(bytes_, std::move(others));
  return out;
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes;
  for (int id = 0; id < tokenizer.vocab_size(); ++id) bytes.push_back(tokenizer.token_bytes(id));
  const bool drops = drops_space(tokenizer, bytes);
  return std::make_shared<const Vocabulary>(std::move(bytes), drops);
}

std::string_view Vocabulary::bytes(int id) const {
  if (id < 0 || static_cast<size_t>(id) >= size()) return {};
  const std::string& text = bytes_[static_cast<size_t>(id)];
  return text.size() <= kLongestToken ? std::string_view(text) : std::string_view();
}

int Vocabulary::longest_at(std::string_view text) const {
  int longest = -1;
  const auto& nodes = all_.nodes;
  auto end = static_cast<uint32_t>(nodes.size() - 1);
  for (uint32_t i = 0, depth = 0; i < end && depth < text.size();) {
    if (nodes[i].byte != static_cast<uint8_t>(text[depth])) {
      i = nodes[i].end;  // its neighbour
      continue;
    }
    if (nodes[i].ids_begin < nodes[i + 1].ids_begin) longest = all_.ids[nodes[i].ids_begin];
    end = nodes[i].end;
    ++i, ++depth;
  }
  return longest;
}

void Vocabulary::note_bytes() {
  for (const std::string& text : bytes_)
    if (text.size() == 1) has_byte_[static_cast<uint8_t>(text[0])] = true;
  for (uint8_t byte = 0x20; byte < 0x7F; ++byte)
    if (!has_byte_[byte])
      throw Error(ErrorCode::kUnsupported,
                  cat("response_format: no token of the tokenizer is the byte ", byte,
                      " alone; expected a byte-level or byte-fallback vocabulary"));
}

bool Vocabulary::can_spell(std::string_view bytes) const {
  return std::ranges::all_of(bytes, [&](char byte) { return has_byte_[static_cast<uint8_t>(byte)]; });
}

}  // namespace lmdeploy::grammar
