#include "lmdeploy/text/grammar/automaton.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/random.h"

namespace lmdeploy::grammar {
namespace {

constexpr uint32_t kDeepest = 1000;  // frames; a text nested deeper is not part of the language
constexpr size_t kMostStates = 1'000'000;
constexpr size_t kMostFrames = 4'000'000;
constexpr size_t kMostItems = 20'000;  // of one state

uint64_t mix(uint64_t hash, uint64_t value) { return random_bits(hash, value); }

// Bytes between which some edge makes a difference are of different classes.
std::array<uint8_t, 256> byte_classes(const Grammar& grammar) {
  std::array<bool, 257> begins{};
  for (const Node& node : grammar.nodes)
    for (const ByteEdge& edge : node.bytes) begins[edge.first] = begins[edge.last + size_t{1}] = true;
  std::array<uint8_t, 256> classes{};
  uint8_t last = 0;
  for (size_t byte = 1; byte < 256; ++byte) classes[byte] = begins[byte] ? ++last : last;
  return classes;
}

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      class_of_(byte_classes(*grammar_)),
      num_classes_(class_of_[255] + size_t{1}),
      seen_(grammar_->nodes.size()),
      path_(vocabulary_->longest() + 1) {
  begin_state();
  enter({grammar_->start, 0, 0});
  start_ = take_state();
}

void Automaton::begin_state() {
  next_ = {};
  pending_.clear();
  ++stamp_;
}

uint32_t Automaton::frame(NodeId node, uint32_t count, uint32_t parent) {
  const uint64_t hash = mix(mix(node, count), parent);
  const auto [begin, end] = frame_ids_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const Frame& f = frames_[known->second];
    if (f.node == node && f.count == count && f.parent == parent) return known->second;
  }
  if (frames_.size() >= kMostFrames)
    throw Error(ErrorCode::kResourceExhausted,
                "response_format: the answer is nested in too many ways at once");
  frames_.push_back({node, count, parent, frames_[parent].depth + 1});
  const auto id = static_cast<uint32_t>(frames_.size() - 1);
  frame_ids_.emplace(hash, id);
  return id;
}

// Adds to next_ all that can be reached from `place` without reading.
void Automaton::enter(Place place) {
  pending_.push_back(place);
  while (!pending_.empty()) {
    const Place next = pending_.back();
    pending_.pop_back();
    visit(next);
  }
}

void Automaton::visit(const Place& place) {
  const Node& node = grammar_->nodes[place.node];
  if (node.repetition >= 0) return visit_repetition(place);
  Seen& seen = seen_[place.node];
  if (seen.stamp == stamp_ && seen.parent == place.parent) return;
  seen = {stamp_, place.parent};
  if (!node.bytes.empty()) next_.items.push_back({place.node, place.parent});
  if (node.is_end) leave(place.parent);
  for (const NodeId next : node.jumps) pending_.push_back({next, 0, place.parent});
  for (const CallEdge& edge : node.calls) {
    const Node& next = grammar_->nodes[edge.next];
    const bool is_last = next.is_end && next.bytes.empty() && next.jumps.empty() && next.calls.empty();
    if (is_last) {  // a call that nothing follows needs no frame of its own
      pending_.push_back({edge.rule, 0, place.parent});
    } else if (frames_[place.parent].depth < kDeepest) {
      pending_.push_back({edge.rule, 0, frame(edge.next, 0, place.parent)});
    }
  }
}

void Automaton::visit_repetition(const Place& place) {
  const Repetition& repetition =
      grammar_->repetitions[static_cast<size_t>(grammar_->nodes[place.node].repetition)];
  if (place.count >= repetition.min) leave(place.parent);
  if (place.count >= repetition.max || frames_[place.parent].depth >= kDeepest) return;
  const bool counts = repetition.max != Repetition::kNoLimit || place.count < repetition.min;
  const uint32_t count = counts ? place.count + 1 : place.count;
  pending_.push_back({repetition.body, 0, frame(place.node, count, place.parent)});
}

void Automaton::leave(uint32_t parent) {
  if (parent == 0) {
    next_.accepts = true;
    return;
  }
  const Frame& below = frames_[parent];
  pending_.push_back({below.node, below.count, below.parent});
}

// What has been entered since begin_state(); kDead when that is nothing.
StateId Automaton::take_state() {
  State made = std::exchange(next_, {});
  if (made.items.empty() && !made.accepts) return kDead;
  std::sort(made.items.begin(), made.items.end());
  made.items.erase(std::unique(made.items.begin(), made.items.end()), made.items.end());
  uint64_t hash = made.accepts;
  for (const Item& item : made.items) hash = mix(mix(hash, item.node), item.parent);
  const auto [begin, end] = state_ids_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const State& other = states_[static_cast<size_t>(known->second)];
    if (other.accepts == made.accepts && other.items == made.items) return known->second;
  }
  if (states_.size() >= kMostStates || made.items.size() > kMostItems)
    throw Error(ErrorCode::kResourceExhausted,
                "response_format: what the answer can go on with is too much to keep track of");
  const auto id = static_cast<StateId>(states_.size());
  num_items_ += made.items.size();
  states_.push_back(std::move(made));
  steps_.resize(steps_.size() + num_classes_, kUnknown);
  state_ids_.emplace(hash, id);
  return id;
}

StateId Automaton::step(StateId state, uint8_t byte) {
  const StateId next = steps_[static_cast<size_t>(state) * num_classes_ + class_of_[byte]];
  return next != kUnknown ? next : make_step(state, byte);
}

StateId Automaton::make_step(StateId state, uint8_t byte) {
  begin_state();
  for (const Item& item : states_[static_cast<size_t>(state)].items)
    for (const ByteEdge& edge : grammar_->nodes[item.node].bytes)
      if (edge.first <= byte && byte <= edge.last) enter({edge.next, 0, item.parent});
  const StateId next = take_state();
  steps_[static_cast<size_t>(state) * num_classes_ + class_of_[byte]] = next;
  return next;
}

StateId Automaton::after(StateId state, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < bytes.size() && state != kDead; ++i)
    state = step(state, static_cast<uint8_t>(bytes[i]));
  return state;
}

bool Automaton::accepts(StateId state) const {
  const std::lock_guard lock(mutex_);
  return states_[static_cast<size_t>(state)].accepts;
}

bool Automaton::is_complete(StateId state) const {
  const std::lock_guard lock(mutex_);
  const State& s = states_[static_cast<size_t>(state)];
  return s.accepts && s.items.empty();
}

std::string Automaton::forced(StateId state, size_t most) {
  const std::lock_guard lock(mutex_);
  std::string bytes;
  while (bytes.size() < most) {
    const State& s = states_[static_cast<size_t>(state)];
    if (s.accepts || s.items.empty()) break;
    const ByteEdge first = grammar_->nodes[s.items[0].node].bytes[0];
    const bool alone = std::ranges::all_of(s.items, [&](const Item& item) {
      return std::ranges::all_of(grammar_->nodes[item.node].bytes, [&](const ByteEdge& edge) {
        return edge.first == first.first && edge.last == first.first;
      });
    });
    if (!alone) break;
    state = step(state, first.first);
    if (state == kDead) break;  // nested too deeply
    bytes.push_back(static_cast<char>(first.first));
  }
  return bytes;
}

size_t Automaton::memory() const {
  const std::lock_guard lock(mutex_);
  constexpr size_t kIndexEntry = 48;  // of a hash table, about
  return steps_.size() * sizeof(StateId) + states_.size() * (sizeof(State) + kIndexEntry) +
         num_items_ * sizeof(Item) + frames_.size() * (sizeof(Frame) + sizeof(uint32_t) + kIndexEntry) +
         num_masks_ * vocabulary_->num_words() * sizeof(uint32_t);
}

PlainState Automaton::plain(StateId state) const {
  const std::lock_guard lock(mutex_);
  PlainState out;
  out.accepts = states_[static_cast<size_t>(state)].accepts;
  for (const Item& item : states_[static_cast<size_t>(state)].items) {
    PlainState::Stack stack{item.node, {}};
    for (uint32_t id = item.parent; id != 0; id = frames_[id].parent)
      stack.frames.emplace_back(frames_[id].node, frames_[id].count);
    out.stacks.push_back(std::move(stack));
  }
  return out;
}

StateId Automaton::state(const PlainState& plain) {
  const std::lock_guard lock(mutex_);
  begin_state();
  next_.accepts = plain.accepts;
  for (const PlainState::Stack& stack : plain.stacks) {
    uint32_t parent = 0;
    for (size_t i = stack.frames.size(); i-- > 0;)
      parent = frame(stack.frames[i].first, stack.frames[i].second, parent);
    next_.items.push_back({stack.node, parent});
  }
  return take_state();
}

}  // namespace lmdeploy::grammar
