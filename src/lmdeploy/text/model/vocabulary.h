// Token spellings and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// Ids may have holes. Immutable once filled; thread-safe then.
class Vocabulary {
 public:
  /// Ids at or past this are refused: tables are as long as the largest id.
  static constexpr int kMaxId = 1 << 22;

  /// Room for so many tokens.
  void reserve(size_t num_tokens);
  /// The id must be free. Of two tokens with one spelling find() gives the first.
  void add(std::string_view text, int id);

  std::optional<int> find(std::string_view text) const;
  bool contains(int id) const { return id >= 0 && id < num_ids() && entries_[static_cast<size_t>(id)].used; }
  /// "" for an unused id.
  std::string_view text(int id) const;
  int num_ids() const { return static_cast<int>(entries_.size()); }  // largest id + 1
  int num_tokens() const { return num_tokens_; }

 private:
  struct Entry {
    uint32_t begin = 0;  // in text_
    uint32_t size = 0;
    bool used = false;
  };
  size_t slot_of(std::string_view text) const;

  std::string text_;
  std::vector<Entry> entries_;  // by id
  std::vector<int32_t> table_;  // open addressing: ids, -1 for a free slot; a power of two, at most half full
  int num_tokens_ = 0;
  int num_spellings_ = 0;
};

}  // namespace lmdeploy
