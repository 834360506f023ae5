// Token spellings and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
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
  /// find() of many texts at once, which waits less for memory; -1 where there is none. `ids` holds as many.
  void find_all(std::span<const std::string_view> texts, int* ids) const;
  bool contains(int id) const {
    return id >= 0 && id < num_ids() && entries_[static_cast<size_t>(id)].size != kUnused;
  }
  /// "" for an unused id.
  std::string_view text(int id) const;
  int num_ids() const { return static_cast<int>(entries_.size()); }  // largest id + 1
  int num_tokens() const { return num_tokens_; }

 private:
  static constexpr uint32_t kUnused = ~uint32_t{0};
  struct Entry {
    uint32_t begin = 0;  // in text_
    uint32_t size = kUnused;
  };
  struct Slot {
    uint32_t tag = 0;  // the upper half of the text's hash: tells most other texts without a look at them
    int32_t id = -1;   // -1: free
  };
  size_t slot_of(std::string_view text, uint64_t hash) const;
  void put(std::string_view text, int id);

  std::string text_;
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> table_;     // open addressing; a power of two, at most half full
  int num_tokens_ = 0;
  int num_spellings_ = 0;
};

}  // namespace lmdeploy
