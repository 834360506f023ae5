// From a word to its tokens: cache, cuts, and two ways of merging.
#include "lmdeploy/text/model/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

constexpr size_t kNumJunctions = size_t{1} << 23;  // 1 MiB of bits; Gemma 3 has about 300 thousand pairs
constexpr size_t kShortWord = 48;  // symbols up to which a scan for the lowest rank beats a heap
constexpr uint32_t kNowhere = std::numeric_limits<uint32_t>::max();

size_t junction_index(char32_t left, char32_t right) {
  return mix_bits(uint64_t{left} << 32 | right) & (kNumJunctions - 1);
}

// Merging with a heap of (rank, position) and a linked list of the symbols that are left: n log n. An entry
// of the heap is stale when the symbol's merge with its neighbour has changed since.
class LongMerge {
 public:
  LongMerge(const MergeTable& table, EncodeScratch& scratch) : table_(table), s_(scratch) {
    const size_t count = s_.symbols.size();
    LMD_CHECK(count < kNowhere, count);
    s_.merges.resize(count);
    s_.previous.resize(count);
    s_.next.resize(count);
    s_.queue.clear();
  }

  void run() {
    const auto count = static_cast<uint32_t>(s_.symbols.size());
    for (uint32_t i = 0; i < count; ++i) {
      s_.previous[i] = i == 0 ? kNowhere : i - 1;
      s_.next[i] = i + 1 == count ? kNowhere : i + 1;
      enqueue(i);
    }
    std::make_heap(s_.queue.begin(), s_.queue.end(), kLowestFirst);
    while (!s_.queue.empty()) {
      std::pop_heap(s_.queue.begin(), s_.queue.end(), kLowestFirst);
      const uint64_t top = s_.queue.back();
      s_.queue.pop_back();
      const auto left = static_cast<uint32_t>(top);
      const bool stale = s_.merges[left] == kNoMerge || s_.merges[left] >> 32 != top >> 32;
      if (!stale) join(left);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != kNowhere; i = s_.next[i]) s_.symbols[kept++] = s_.symbols[i];
    s_.symbols.resize(kept);
  }

 private:
  static constexpr std::greater<> kLowestFirst{};

  // Finds the merge of `left` with its right neighbour; true when there is one, which then ends the queue.
  bool enqueue(uint32_t left) {
    const uint32_t right = s_.next[left];
    Merge& merge = s_.merges[left];
    merge = right == kNowhere ? kNoMerge : table_.find(s_.symbols[left], s_.symbols[right]);
    if (merge != kNoMerge) s_.queue.push_back((merge >> 32 << 32) | left);
    return merge != kNoMerge;
  }

  void push(uint32_t left) {
    if (enqueue(left)) std::push_heap(s_.queue.begin(), s_.queue.end(), kLowestFirst);
  }

  void join(uint32_t left) {
    const uint32_t right = s_.next[left];
    s_.symbols[left] = merged_id(s_.merges[left]);
    s_.merges[right] = kNoMerge;
    s_.next[left] = s_.next[right];
    if (s_.next[left] != kNowhere) s_.previous[s_.next[left]] = left;
    push(left);
    if (s_.previous[left] != kNowhere) push(s_.previous[left]);
  }

  const MergeTable& table_;
  EncodeScratch& s_;
};

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), options_(std::move(options)) {
  for (int byte = 0; options_.byte_units && byte < 256; ++byte)
    id_of_byte_.push_back(vocabulary_.find(std::string(1, static_cast<char>(byte))).value_or(-1));
  if (options_.byte_fallback) byte_fallback_ = ByteFallback(vocabulary_);
}

void BpeModel::note_junction(char32_t left, char32_t right) {
  if (junctions_.empty()) junctions_.resize(kNumJunctions);
  junctions_[junction_index(left, right)] = true;
}

// Cutting must not change what becomes of unknown characters, so none may be dropped, fused or moved.
void BpeModel::allow_cuts() {
  cuts_allowed_ = byte_fallback_.complete() && !junctions_.empty() && !options_.byte_units &&
                  !options_.ignore_merges && options_.continuing_prefix.empty() &&
                  options_.end_suffix.empty();
}

void BpeModel::encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const {
  if (!cuts_allowed_) return encode_part(word, scratch, ids);
  for (size_t from = 0; from < word.size();) {
    const size_t end = next_cut(word, from);
    encode_part(word.substr(from, end - from), scratch, ids);
    from = end;
  }
}

// The end of the part that begins at `from`: no merge joins the characters around it.
size_t BpeModel::next_cut(std::string_view word, size_t from) const {
  Utf8Char left = decode_utf8(word, from);
  for (size_t at = from + left.size; at < word.size();) {
    const Utf8Char right = decode_utf8(word, at);
    if (!junctions_[junction_index(left.code, right.code)]) return at;
    left = right;
    at += right.size;
  }
  return word.size();
}

void BpeModel::encode_part(std::string_view part, EncodeScratch& scratch, std::vector<int>& ids) const {
  if (scratch.cache.find(part, ids)) return;
  const size_t first = ids.size();
  encode_uncached(part, scratch, ids);
  scratch.cache.put(part, std::span(ids).subspan(first));
}

void BpeModel::encode_uncached(std::string_view part, EncodeScratch& scratch, std::vector<int>& ids) const {
  if (options_.ignore_merges) {
    if (const auto id = vocabulary_.find(part)) return ids.push_back(*id);
  }
  scratch.symbols.clear();
  split_symbols(part, scratch.symbols);
  if (scratch.symbols.size() <= kShortWord) {
    merge_short(scratch);
  } else {
    merge_long(scratch);
  }
  append_symbols(scratch.symbols, ids);
}

// Characters that stayed alone although they only occur inside tokens are unknown after all.
void BpeModel::append_symbols(const std::vector<int>& symbols, std::vector<int>& ids) const {
  if (options_.first_virtual_id == Vocabulary::kMaxId)
    return void(ids.insert(ids.end(), symbols.begin(), symbols.end()));
  bool after_unknown = false;
  for (const int id : symbols) {
    const bool is_virtual = id >= options_.first_virtual_id;
    const bool unknown = is_virtual || id == options_.unk_id;
    if (is_virtual && byte_fallback_.append(vocabulary_.text(id), ids)) continue;
    const bool left_out = (unknown && after_unknown && options_.fuse_unk) || (is_virtual && !options_.unk_id);
    if (!left_out) ids.push_back(unknown ? *options_.unk_id : id);
    after_unknown = unknown;
  }
}

// How the vocabulary spells a character (or byte) in its place in the word; `buffer` may hold the text.
std::string_view BpeModel::spell(std::string_view unit, bool first, bool last, std::string& buffer) const {
  const bool has_prefix = !first && !options_.continuing_prefix.empty();
  const bool has_suffix = last && !options_.end_suffix.empty();
  if (!has_prefix && !has_suffix) return unit;
  buffer = cat(has_prefix ? options_.continuing_prefix : "", unit, has_suffix ? options_.end_suffix : "");
  return buffer;
}

std::optional<int> BpeModel::find_symbol(std::string_view spelled) const {
  if (!options_.byte_units || spelled.size() != 1) return vocabulary_.find(spelled);
  const int id = id_of_byte_[static_cast<uint8_t>(spelled[0])];
  return id < 0 ? std::nullopt : std::optional<int>(id);
}

// An unknown character waits until the next known or unknown one (not byte fallback) comes: tokenizers' BPE
// gives it out in that order, and so do we.
void BpeModel::split_symbols(std::string_view word, std::vector<int>& symbols) const {
  bool unknown_waits = false;
  std::string buffer;
  for (size_t at = 0; at < word.size();) {
    const size_t size = options_.byte_units ? 1 : decode_utf8(word, at).size;
    const std::string_view spelled = spell(word.substr(at, size), at == 0, at + size == word.size(), buffer);
    const auto id = find_symbol(spelled);
    at += size;
    if (!id && byte_fallback_.append(spelled, symbols)) continue;
    if (!id && !options_.unk_id) continue;
    if (unknown_waits && (id || !options_.fuse_unk)) symbols.push_back(*options_.unk_id);
    unknown_waits = !id;
    if (id) symbols.push_back(*id);
  }
  if (unknown_waits) symbols.push_back(*options_.unk_id);
}

void BpeModel::merge_short(EncodeScratch& scratch) const {
  std::vector<int>& symbols = scratch.symbols;
  std::vector<Merge>& merges = scratch.merges;
  if (symbols.size() < 2) return;
  merges.resize(symbols.size() - 1);
  for (size_t i = 0; i < merges.size(); ++i) merges[i] = merges_.find(symbols[i], symbols[i + 1]);
  while (!merges.empty()) {
    const auto best = std::min_element(merges.begin(), merges.end());  // the leftmost of equals
    if (*best == kNoMerge) return;
    const auto at = static_cast<size_t>(best - merges.begin());
    symbols[at] = merged_id(*best);
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    merges.erase(best);
    if (at > 0) merges[at - 1] = merges_.find(symbols[at - 1], symbols[at]);
    if (at < merges.size()) merges[at] = merges_.find(symbols[at], symbols[at + 1]);
  }
}

void BpeModel::merge_long(EncodeScratch& scratch) const { LongMerge(merges_, scratch).run(); }

}  // namespace lmdeploy
