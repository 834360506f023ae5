// Token masks: a walk through the trie, but for the plain text inside JSON strings, which is known
// beforehand.
#include <algorithm>
#include <limits>

#include "lmdeploy/text/grammar/automaton.h"

namespace lmdeploy::grammar {

// A token reads at most as many bytes as the longest one has, so a repetition that is farther than that from
// both its limits behaves as any other such does.
uint32_t Automaton::typical_count(NodeId node, uint32_t count) const {
  const int32_t index = grammar_->nodes[node].repetition;
  if (index < 0) return count;
  const Repetition& repetition = grammar_->repetitions[static_cast<size_t>(index)];
  const auto far = static_cast<uint32_t>(vocabulary_->longest() + 1);
  if (count < repetition.min) return repetition.min - count > far ? repetition.min - far : count;
  return repetition.max - count > far ? repetition.min : count;
}

uint32_t Automaton::typical_frame(uint32_t id) {
  std::vector<uint32_t> path;
  uint32_t below = 0;
  for (; id != 0; id = frames_[id].parent) {
    if (id < typical_frames_.size() && typical_frames_[id] != 0) {
      below = typical_frames_[id];
      break;
    }
    path.push_back(id);
  }
  for (size_t i = path.size(); i-- > 0;) {
    const Frame known = frames_[path[i]];
    below = frame(known.node, typical_count(known.node, known.count), below);
    if (typical_frames_.size() < frames_.size()) typical_frames_.resize(frames_.size());
    typical_frames_[path[i]] = below;
  }
  return below;
}

StateId Automaton::typical(StateId state) {
  StateId& known = states_[static_cast<size_t>(state)].for_mask;
  if (known != kUnknown) return known;
  begin_state();
  next_.accepts = states_[static_cast<size_t>(state)].accepts;
  const std::vector<Item> items = states_[static_cast<size_t>(state)].items;
  for (const Item& item : items) next_.items.push_back({item.node, typical_frame(item.parent)});
  const StateId found = take_state();
  states_[static_cast<size_t>(state)].for_mask = found;
  return found;
}

Room Automaton::room_of(const Item& item, Slice slice) const {
  const Frame& parent = frames_[item.parent];
  const int32_t index = item.parent == 0 ? -1 : grammar_->nodes[parent.node].repetition;
  if (index >= 0) {
    const Repetition& repetition = grammar_->repetitions[static_cast<size_t>(index)];
    if (repetition.of_characters && repetition.body == item.node) {
      const uint64_t left = uint64_t{repetition.max} - parent.count + 1;  // this character is counted already
      const bool any = repetition.max == Repetition::kNoLimit || left > kMostInSlice;
      const auto room = any ? Room::kAny : static_cast<uint8_t>(left);
      return {room, room};
    }
  }
  const Node& node = grammar_->nodes[item.node];
  const Room room = node.rooms[static_cast<size_t>(slice)];
  if (room.certain > 0 || room.possible != Room::kAny) return room;
  const bool takes = std::ranges::any_of(node.bytes, [&](const ByteEdge& edge) {
    for (int byte = edge.first; byte <= edge.last; ++byte)
      if (has_byte(slice, static_cast<uint8_t>(byte))) return true;
    return false;
  });
  return {0, takes ? Room::kAny : uint8_t{0}};
}

// The largest slice of which it is known how many characters fit, some at least.
std::optional<Automaton::KnownRoom> Automaton::known_room(const State& state) const {
  for (size_t i = kNumSlices; i-- > 0;) {
    Room all = {0, 0};
    for (const Item& item : state.items) {
      const Room room = room_of(item, kSlices[i]);
      all.certain = std::max(all.certain, room.certain);
      all.possible = std::max(all.possible, room.possible);
    }
    if (all.certain > 0 && all.possible <= all.certain) return KnownRoom{kSlices[i], all.certain};
  }
  return std::nullopt;
}

void Automaton::walk(const Trie& trie, StateId from, Bits& mask) {
  path_[0] = from;
  const size_t size = trie.nodes.size() - 1;
  for (size_t i = 0; i < size;) {
    const TrieNode& node = trie.nodes[i];
    const StateId next = step(path_[node.depth], node.byte);
    if (next == kDead) {
      i = node.end;
      continue;
    }
    for (uint32_t k = node.ids_begin; k < trie.nodes[i + 1].ids_begin; ++k)
      mask[static_cast<size_t>(trie.ids[k]) / 32] |= 1u << (trie.ids[k] % 32);
    path_[node.depth + size_t{1}] = next;
    ++i;
  }
}

std::shared_ptr<const Bits> Automaton::make_mask(StateId state) {
  const std::optional<KnownRoom> known = known_room(states_[static_cast<size_t>(state)]);
  auto mask = known ? std::make_shared<Bits>(vocabulary_->tokens_of(known->slice, known->characters))
                    : std::make_shared<Bits>(vocabulary_->num_words());
  walk(known ? vocabulary_->without(known->slice) : vocabulary_->all(), state, *mask);
  ++num_masks_;
  return mask;
}

std::shared_ptr<const Bits> Automaton::mask(StateId state) {
  const std::lock_guard lock(mutex_);
  const StateId same = typical(state);
  std::shared_ptr<const Bits> known = states_[static_cast<size_t>(same)].mask;
  if (known == nullptr) {
    known = make_mask(same);
    states_[static_cast<size_t>(same)].mask = known;
  }
  return known;
}

}  // namespace lmdeploy::grammar
