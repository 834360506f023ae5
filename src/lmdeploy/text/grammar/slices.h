// Sets of characters that the inside of a string mostly takes or refuses as a whole: what masks can know
// beforehand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "lmdeploy/text/grammar/dfa.h"

namespace lmdeploy::grammar {

/// Each has all that the one before it has: ASCII letters and digits; the space; all beyond ASCII; ASCII's
/// punctuation. None has quotes, backslashes or control characters.
enum class Slice : uint8_t { kAlnum, kWords, kLetters, kPlain };
constexpr size_t kNumSlices = 4;
constexpr std::array<Slice, kNumSlices> kSlices = {Slice::kAlnum, Slice::kWords, Slice::kLetters,
                                                   Slice::kPlain};

/// The smallest slice that has the character; nothing when none has.
std::optional<Slice> slice_of(char32_t code);
/// Whether the encoding of a character of the slice may hold the byte.
bool has_byte(Slice slice, uint8_t byte);

/// A token of a slice has at most this many characters.
constexpr size_t kMostInSlice = 32;

/// How many characters of a slice can come one after another; more than kMostInSlice is any number.
struct Room {
  static constexpr uint8_t kAny = kMostInSlice + 1;
  uint8_t certain = 0;      // this many, whichever they are
  uint8_t possible = kAny;  // no more than this many
};
using Rooms = std::array<Room, kNumSlices>;

/// Of each state. What follows an accepted text must begin with no character of a slice.
std::vector<Rooms> rooms_of(const Dfa& dfa);

}  // namespace lmdeploy::grammar
