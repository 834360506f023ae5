// What pre-tokenizers ask of a character, in one look at a table.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lmdeploy {

/// A character's classes, as bits.
namespace char_class {
inline constexpr uint8_t kLetter = 1;    // \p{L}
inline constexpr uint8_t kMark = 2;      // \p{M}
inline constexpr uint8_t kNumber = 4;    // \p{N}
inline constexpr uint8_t kSpace = 8;     // \s
inline constexpr uint8_t kBreak = 16;    // [\r\n]
inline constexpr uint8_t kOpening = 32;  // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr uint8_t kClosing = 64;  // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
}  // namespace char_class

/// Computed from the Unicode properties, without a table.
uint8_t compute_char_class(char32_t code);

/// The same for all code points below 0x20000 from memory: pages of 128, equal ones stored once.
class CharClassTable {
 public:
  static const CharClassTable& get();

  uint8_t operator[](char32_t code) const {
    return code < kEnd ? pages_[page_of_[code >> kPageBits] + (code & (kPageSize - 1))]
                       : compute_char_class(code);
  }
  /// The first page, which is ASCII.
  const uint8_t* ascii() const { return pages_.data(); }

 private:
  CharClassTable();
  static constexpr char32_t kEnd = 0x20000;
  static constexpr int kPageBits = 7;
  static constexpr char32_t kPageSize = 1 << kPageBits;
  std::vector<uint8_t> pages_;
  std::array<uint32_t, (kEnd >> kPageBits)> page_of_{};  // where in pages_ it begins
};

}  // namespace lmdeploy
