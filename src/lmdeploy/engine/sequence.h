// The tokens of one session, or of one request without a session, and where their keys and values are.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lmdeploy/engine/block_groups.h"
#include "lmdeploy/engine/block_manager.h"
#include "lmdeploy/engine/prefix_index.h"

namespace lmdeploy {

/// The keys of blocks [first, first + keys.size()) of one group.
struct RestingBlocks {
  int64_t first = 0;
  std::vector<BlockKey> keys;
};

/// A sequence at rest holds no block, only the keys of those that had its content; when it runs again, what
/// is still there is taken back and the rest is computed anew from the token ids. The caller cannot tell.
struct Sequence {
  static constexpr int64_t kNoRows = std::numeric_limits<int64_t>::max();
  static constexpr int32_t kKnown = -1;

  uint64_t session_id = 0;  // 0: none
  std::vector<int> tokens;  // history, prompt and what has been generated
  /// The blocks have the keys and values of tokens [0, cache_len); in window groups, of those that token
  /// cache_len still reads.
  int64_t cache_len = 0;
  std::vector<BlockList> blocks;              // [groups] while running, ending alike; else empty
  std::vector<RestingBlocks> resting_blocks;  // [groups] at rest, or empty
  int32_t rope_length = 0;                    // see StepInput
  uint64_t prefix_salt = 0;                   // see PrefixIndex
  PrefixCursor published;                     // what the index knows of the running blocks
  uint64_t num_drawn = 0;    // tokens generated in the session: the counter of the random draws
  std::vector<int> guesses;  // of the tokens to come, for the next step to check
  /// The draw, of those that are going on, which the last token comes from: until it is known it stands in
  /// `tokens` as 0.
  int32_t last_draw = kKnown;

  // Of the request that runs on it now.
  uint64_t request_id = 0;   // rises in order of arrival
  int64_t prompt_begin = 0;  // tokens before it are history
  int64_t prompt_end = 0;    // tokens from it on have been generated
  int64_t rows_from =
      kNoRows;              // from this token on all logit rows are wanted, besides that of the last token
  int64_t num_reused = -1;  // prompt tokens found in the prefix index when it first ran; -1: has not yet

  int64_t length() const { return static_cast<int64_t>(tokens.size()); }
  /// Tokens to compute before the next one can be drawn; at least 1 while a request runs.
  int64_t num_pending() const { return length() - cache_len; }
};

/// Where sequences find and leave their blocks.
struct BlockStore {
  BlockManager& blocks;
  PrefixIndex* index;  // nullptr: prefix caching is off
  const BlockGroups& groups;
};

/// Takes back what is left of a resting sequence's blocks, then whatever the prefix index can add. At least
/// one token stays to be computed, and all from rows_from on.
void take_blocks(Sequence& sequence, const BlockStore& store);
/// Takes empty blocks: in full groups for all tokens that the running sequence has and the next `count`, in
/// window groups for these only. False, and nothing is taken, when there are too few.
bool take_room(Sequence& sequence, int64_t count, const BlockStore& store);
/// The keys and values of the next `count` tokens have been computed. Makes newly filled blocks findable and
/// lets go of those that no token to come reads.
void advance(Sequence& sequence, int64_t count, const BlockStore& store);
/// Lets go of the blocks after those that the running sequence's tokens need: guesses were wrong.
void give_back_room(Sequence& sequence, const BlockStore& store);
/// Lets go of all blocks, remembering those with content.
void rest(Sequence& sequence, const BlockStore& store);
/// The tokens will not be needed again: only what the prefix index can find stays cached.
void drop_blocks(Sequence& sequence, const BlockStore& store);
/// Forgets all that was computed from the request's first token on, for everybody: it may be wrong. Needs no
/// memory.
void spoil_blocks(Sequence& sequence, const BlockStore& store);
/// Rolls a resting sequence back to its first `length` tokens.
void truncate(Sequence& sequence, int64_t length);

}  // namespace lmdeploy
