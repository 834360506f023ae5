// A grammar run over a vocabulary: a deterministic automaton whose states are sets of stacks, made as they
// are met.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lmdeploy/text/grammar/grammar.h"
#include "lmdeploy/text/grammar/vocabulary.h"

namespace lmdeploy::grammar {

using StateId = int32_t;
constexpr StateId kDead = -1;

/// A stack of the grammar: where to go on when the rule above has ended.
struct Frame {
  NodeId node = 0;
  uint32_t count = 0;   // of a repetition: how often its body has come
  uint32_t parent = 0;  // index of the frame below; 0: none
  uint32_t depth = 0;
};

/// A state with all its stacks written out, the same in every automaton of one grammar.
struct PlainState {
  struct Stack {
    NodeId node = 0;
    std::vector<std::pair<NodeId, uint32_t>> frames;  // from the top
  };
  std::vector<Stack> stacks;
  bool accepts = false;
};

/// Thread-safe: each call holds the lock. States and masks stay until the automaton is destroyed.
class Automaton {
 public:
  Automaton(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  StateId start() const { return start_; }
  StateId state(const PlainState& plain);
  PlainState plain(StateId state) const;
  /// kDead when no text that begins so is part of the language. Throws Error(kResourceExhausted) when there
  /// are too many states.
  StateId after(StateId state, std::string_view bytes);
  bool accepts(StateId state) const;
  /// It accepts, and there is nothing to go on with.
  bool is_complete(StateId state) const;
  /// The tokens that some text goes on with.
  std::shared_ptr<const Bits> mask(StateId state);
  /// The bytes that every text goes on with, at most `most` of them.
  std::string forced(StateId state, size_t most);
  size_t memory() const;

 private:
  struct Item {  // a node with byte edges, on a stack
    NodeId node = 0;
    uint32_t parent = 0;
    auto operator<=>(const Item&) const = default;
  };
  struct State {
    std::vector<Item> items;  // ascending
    bool accepts = false;
    StateId for_mask = kUnknown;  // the state with the same mask that is computed for all of its kind
    std::shared_ptr<const Bits> mask;
  };
  struct Place {
    NodeId node = 0;
    uint32_t count = 0, parent = 0;
  };
  static constexpr StateId kUnknown = -2;

  uint32_t frame(NodeId node, uint32_t count, uint32_t parent);
  void begin_state();
  void enter(Place place);
  void visit(const Place& place);
  void visit_repetition(const Place& place);
  void leave(uint32_t parent);
  StateId take_state();
  StateId step(StateId state, uint8_t byte);
  StateId make_step(StateId state, uint8_t byte);

  uint32_t typical_count(NodeId node, uint32_t count) const;
  uint32_t typical_frame(uint32_t frame);
  StateId typical(StateId state);
  struct KnownRoom {
    Slice slice = Slice::kPlain;
    size_t characters = 0;
  };
  Room room_of(const Item& item, Slice slice) const;
  std::optional<KnownRoom> known_room(const State& state) const;
  void walk(const Trie& trie, StateId from, Bits& mask);
  std::shared_ptr<const Bits> make_mask(StateId state);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  mutable std::mutex mutex_;
  std::array<uint8_t, 256> class_of_{};  // bytes that no edge tells apart
  size_t num_classes_ = 0;

  std::vector<Frame> frames_ = {Frame{}};
  std::unordered_multimap<uint64_t, uint32_t> frame_ids_;  // by hash
  std::vector<uint32_t> typical_frames_;                   // 0: not known yet

  std::vector<State> states_;
  std::vector<StateId> steps_;                            // [states, classes]
  std::unordered_multimap<uint64_t, StateId> state_ids_;  // by hash
  StateId start_ = kDead;
  size_t num_items_ = 0, num_masks_ = 0;

  // Of the state being made.
  std::vector<Place> pending_;
  State next_;
  struct Seen {
    uint32_t stamp = 0, parent = 0;
  };
  std::vector<Seen> seen_;  // by node
  uint32_t stamp_ = 0;
  std::vector<StateId> path_;  // of a walk
};

}  // namespace lmdeploy::grammar
