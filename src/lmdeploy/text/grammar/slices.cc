#include "lmdeploy/text/grammar/slices.h"

#include <algorithm>

namespace lmdeploy::grammar {
namespace {

const CodeSet& codes_of(Slice slice) {
  static const std::array<CodeSet, kNumSlices> kCodes = [] {
    std::array<CodeSet, kNumSlices> codes;
    for (const Slice each : kSlices) {
      std::vector<CodeRange> ranges;
      for (char32_t c = 0; c <= 0x80; ++c)
        if (const auto smallest = slice_of(c); smallest && *smallest <= each)
          ranges.push_back({c, c < 0x80 ? c : kLastCode});
      codes[static_cast<size_t>(each)] = make_code_set(std::move(ranges));
    }
    return codes;
  }();
  return kCodes[static_cast<size_t>(slice)];
}

/// The steps of a state that read characters of a slice.
struct Steps {
  std::vector<uint32_t> next;
  bool all = false;  // there is one for each character
};

Steps steps_of(const Dfa::State& state, const CodeSet& slice) {
  Steps steps;
  size_t covered = 0, size = 0;
  for (const CodeRange& range : slice) {
    size += range.last - range.first + 1;
    for (const Dfa::Edge& edge : state.edges) {
      const char32_t first = std::max(edge.first, range.first), last = std::min(edge.last, range.last);
      if (first > last) continue;
      covered += last - first + 1;
      if (std::ranges::find(steps.next, edge.next) == steps.next.end()) steps.next.push_back(edge.next);
    }
  }
  steps.all = covered == size;
  return steps;
}

uint8_t one_more(uint8_t room) { return std::min<uint8_t>(Room::kAny, room + 1); }

// Both bounds come nearer to the truth with each round, by one character at least.
void fill_rooms(const std::vector<Steps>& steps, size_t slice, std::vector<Rooms>& rooms) {
  for (Rooms& room : rooms) room[slice] = {Room::kAny, 0};
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = steps.size(); i-- > 0;) {  // most steps lead on to states with higher numbers
      Room room = {steps[i].all ? Room::kAny : uint8_t{0}, 0};
      for (const uint32_t next : steps[i].next) {
        room.certain = std::min(room.certain, one_more(rooms[next][slice].certain));
        room.possible = std::max(room.possible, one_more(rooms[next][slice].possible));
      }
      changed =
          changed || room.certain != rooms[i][slice].certain || room.possible != rooms[i][slice].possible;
      rooms[i][slice] = room;
    }
  }
}

}  // namespace

std::optional<Slice> slice_of(char32_t code) {
  if (code < 0x20 || code == '"' || code == '\\') return std::nullopt;
  if (code >= 0x80) return Slice::kLetters;
  if (code == ' ') return Slice::kWords;
  const bool alnum = (code >= '0' && code <= '9') || ((code | 0x20) >= 'a' && (code | 0x20) <= 'z');
  return alnum ? Slice::kAlnum : Slice::kPlain;
}

bool has_byte(Slice slice, uint8_t byte) {
  const std::optional<Slice> smallest = slice_of(byte);
  return smallest && *smallest <= slice;
}

std::vector<Rooms> rooms_of(const Dfa& dfa) {
  std::vector<Rooms> rooms(dfa.states.size());
  for (const Slice slice : kSlices) {
    std::vector<Steps> steps;
    for (const Dfa::State& state : dfa.states) steps.push_back(steps_of(state, codes_of(slice)));
    fill_rooms(steps, static_cast<size_t>(slice), rooms);
  }
  return rooms;
}

}  // namespace lmdeploy::grammar
