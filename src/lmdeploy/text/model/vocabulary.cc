// The hash table behind Vocabulary.
#include "lmdeploy/text/model/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace lmdeploy {

void Vocabulary::reserve(size_t num_tokens) {
  entries_.reserve(num_tokens);
  const size_t wanted = std::bit_ceil(std::max<size_t>(16, num_tokens * 2 + 2));
  if (wanted <= table_.size()) return;
  table_.assign(wanted, -1);
  for (size_t id = 0; id < entries_.size(); ++id)
    if (entries_[id].used) {
      int32_t& slot = table_[slot_of(text(static_cast<int>(id)))];
      if (slot < 0) slot = static_cast<int32_t>(id);
    }
}

// The slot that holds `text`, or the free one where it belongs.
size_t Vocabulary::slot_of(std::string_view text) const {
  const size_t mask = table_.size() - 1;
  size_t slot = std::hash<std::string_view>()(text) & mask;
  while (table_[slot] >= 0 && this->text(table_[slot]) != text) slot = (slot + 1) & mask;
  return slot;
}

void Vocabulary::add(std::string_view text, int id) {
  if (static_cast<size_t>(num_spellings_ + 1) * 2 > table_.size())
    reserve(std::max<size_t>(table_.size(), static_cast<size_t>(num_spellings_) + 1));
  const auto index = static_cast<size_t>(id);
  if (index >= entries_.size()) entries_.resize(index + 1);
  if (!entries_[index].used) ++num_tokens_;
  entries_[index] = {static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(text.size()), true};
  text_.append(text);
  int32_t& slot = table_[slot_of(text)];
  if (slot < 0) {
    slot = id;
    ++num_spellings_;
  }
}

std::optional<int> Vocabulary::find(std::string_view text) const {
  if (table_.empty()) return std::nullopt;
  const int32_t id = table_[slot_of(text)];
  return id < 0 ? std::nullopt : std::optional<int>(id);
}

std::string_view Vocabulary::text(int id) const {
  if (!contains(id)) return {};
  const Entry& entry = entries_[static_cast<size_t>(id)];
  return std::string_view(text_).substr(entry.begin, entry.size);
}

}  // namespace lmdeploy
