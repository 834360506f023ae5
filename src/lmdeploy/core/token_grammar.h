// What a request's tokens must spell, as the engine sees it: which ids may come next. What they stand for is
// known to the rooms above.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace lmdeploy {

/// How far one answer has got. One thread at a time.
class TokenMatcher {
 public:
  virtual ~TokenMatcher() = default;
  /// Bit id % 32 of mask[id / 32] is set for the ids that may come next; all other bits are cleared. Ids
  /// without text (control tokens) never may. Throws Error(kResourceExhausted) for a grammar out of bounds.
  virtual void fill_mask(std::span<uint32_t> mask) = 0;
  /// False, and nothing changes, when the token may not come.
  virtual bool accept(int token) = 0;
  /// What has come is whole.
  virtual bool can_stop() const = 0;
  /// It is, and nothing may follow it.
  virtual bool is_complete() const = 0;
  /// Appends at most `most` ids that are likely to come: they spell what must come, whatever is chosen after
  /// it. Others may spell it too. Throws as fill_mask() does.
  virtual void guess(std::vector<int>& /*ids*/, size_t /*most*/) {}
};

/// Immutable; thread-safe; shared by requests.
class TokenGrammar {
 public:
  virtual ~TokenGrammar() = default;
  virtual std::unique_ptr<TokenMatcher> start() const = 0;
};

}  // namespace lmdeploy
