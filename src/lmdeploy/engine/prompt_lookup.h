// Finds where the last tokens of a sequence have come before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lmdeploy {

/// Grows with its sequence: a token costs a constant time, whatever the length.
class PromptLookup {
 public:
  static constexpr int64_t kShortest = 2,
                           kLongest = 16;  // matches, in tokens; longer ones count as this long

  struct Match {
    int64_t length = 0;  // 0: none
    int64_t next = 0;    // what followed it begins here; there is at least one token
  };
  /// The longest earlier place that ends as `tokens` do, of equal ones the latest. Looks at the latest 64
  /// places that end in the same two tokens. `tokens` begins with those of the last call.
  Match find(std::span<const int> tokens);

 private:
  void add_up_to(std::span<const int> tokens);
  void grow(size_t num_tokens);
  size_t slot(int before, int last) const;

  // A place is the index of the token after a pair. Chains of places whose pairs fall into one slot, latest
  // first; 0 ends a chain.
  std::vector<int32_t> latest_;    // [slots]: a power of two
  std::vector<int32_t> previous_;  // [place]
};

}  // namespace lmdeploy
