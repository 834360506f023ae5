// What turns one word into tokens, and the memory it works in.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lmdeploy/text/model/merge_table.h"
#include "lmdeploy/text/model/word_cache.h"

namespace lmdeploy {

/// Scratch memory of one encoding thread, kept between words. Each model uses what it needs.
struct EncodeScratch {
  WordCache cache;
  // BPE
  std::vector<int> symbols;
  std::vector<Merge> merges;             // of each symbol with the next one
  std::vector<uint32_t> previous, next;  // neighbours still there
  std::vector<uint64_t> queue;           // heap of (rank, position)
  // Unigram: the best path to each byte offset
  struct PathNode {
    double score = 0;
    uint32_t begin = 0;  // where the path's last token begins
    int id = -1;         // -1: no path ends here
  };
  std::vector<PathNode> path;
  std::vector<uint32_t> ends;  // of the best path's tokens, last first
};

/// Immutable; thread-safe.
class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the ids of `word`, which is valid UTF-8 (or bytes, where the model takes bytes). Throws
  /// Error(kInvalidData) when a character has no token and the model no token for unknown ones.
  virtual void encode(std::string_view word, EncodeScratch& scratch, std::vector<int>& ids) const = 0;
};

}  // namespace lmdeploy
