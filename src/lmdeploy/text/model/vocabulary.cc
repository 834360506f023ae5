// The hash table behind Vocabulary.
#include "lmdeploy/text/model/vocabulary.h"

#include <algorithm>
#include <bit>

#include "lmdeploy/text/model/byte_hash.h"

namespace lmdeploy {

void Vocabulary::reserve(size_t num_tokens) {
  entries_.reserve(num_tokens);
  const size_t wanted = std::bit_ceil(std::max<size_t>(16, num_tokens * 2 + 2));
  if (wanted <= table_.size()) return;
  table_.assign(wanted, {});
  num_spellings_ = 0;
  for (int id = 0; id < num_ids(); ++id)
    if (contains(id)) put(text(id), id);
}

// The slot that holds `text`, or the free one where it belongs.
size_t Vocabulary::slot_of(std::string_view text, uint64_t hash) const {
  const size_t mask = table_.size() - 1;
  size_t slot = hash & mask;
  while (table_[slot].id >= 0 && (table_[slot].tag != hash >> 32 || this->text(table_[slot].id) != text))
    slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::put(std::string_view text, int id) {
  const uint64_t hash = hash_bytes(text);
  Slot& slot = table_[slot_of(text, hash)];
  if (slot.id >= 0) return;
  slot = {static_cast<uint32_t>(hash >> 32), id};
  ++num_spellings_;
}

void Vocabulary::add(std::string_view text, int id) {
  if (static_cast<size_t>(num_spellings_ + 1) * 2 > table_.size())
    reserve(std::max<size_t>(table_.size(), static_cast<size_t>(num_spellings_) + 1));
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (entries_[index].size == kUnused) ++num_tokens_;
  entries_[index] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size())};
  text_.append(text);
  put(text, id);
}

std::optional<int> Vocabulary::find(std::string_view text) const {
  if (table_.empty()) return std::nullopt;
  const int32_t id = table_[slot_of(text, hash_bytes(text))].id;
  return id < 0 ? std::nullopt : std::optional<int>(id);
}

// First all slots are asked for, then all entries, then all spellings; by the time they are compared they are
// there.
void Vocabulary::find_all(std::span<const std::string_view> texts, int* ids) const {
  std::fill_n(ids, texts.size(), -1);
  if (table_.empty()) return;
  const auto slot_at = [&](size_t i) -> const Slot& {
    return table_[hash_bytes(texts[i]) & (table_.size() - 1)];
  };
  for (size_t i = 0; i < texts.size(); ++i) __builtin_prefetch(&slot_at(i));
  for (size_t i = 0; i < texts.size(); ++i) {
    ids[i] = slot_at(i).id;
    if (ids[i] >= 0) __builtin_prefetch(&entries_[static_cast<size_t>(ids[i])]);
  }
  for (size_t i = 0; i < texts.size(); ++i)
    if (ids[i] >= 0) __builtin_prefetch(text_.data() + entries_[static_cast<size_t>(ids[i])].begin);
  for (size_t i = 0; i < texts.size(); ++i) ids[i] = find(texts[i]).value_or(-1);
}

std::string_view Vocabulary::text(int id) const {
  if (!contains(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(text_).substr(entry.begin, entry.size);
}

}  // namespace lmdeploy
