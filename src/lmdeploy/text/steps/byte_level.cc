// The tables of GPT-2's byte-level alphabet.
#include "lmdeploy/text/steps/byte_level.h"

#include <array>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

// Bytes that are printable in Latin-1 stand for themselves; the other 68, in order, for U+0100 and up
// (bytes_to_unicode in GPT-2's encoder.py).
constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr int kNumChars = 0x144;  // one past the largest character

struct Tables {
  std::array<uint16_t, 256> char_of_byte{};
  std::array<int16_t, kNumChars> byte_of_char{};  // -1: not in the alphabet
};

constexpr Tables make_tables() {
  Tables tables;
  for (int16_t& byte : tables.byte_of_char) byte = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = stands_for_itself(byte) ? byte : next++;
    tables.char_of_byte[static_cast<size_t>(byte)] = static_cast<uint16_t>(code);
    tables.byte_of_char[static_cast<size_t>(code)] = static_cast<int16_t>(byte);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

char32_t byte_level_char(uint8_t byte) { return kTables.char_of_byte[byte]; }

void append_byte_level(std::string& out, std::string_view bytes) {
  for (const char byte : bytes) append_utf8(out, byte_level_char(static_cast<uint8_t>(byte)));
}

bool append_byte_level_bytes(std::string& out, std::string_view spelled) {
  const size_t old_size = out.size();
  for (size_t at = 0; at < spelled.size();) {
    const Utf8Char c = decode_utf8(spelled, at);
    if (c.code >= kNumChars || kTables.byte_of_char[c.code] < 0) {
      out.resize(old_size);
      return false;
    }
    out.push_back(static_cast<char>(kTables.byte_of_char[c.code]));
    at += c.size;
  }
  return true;
}

std::optional<std::string> byte_level_bytes(std::string_view spelled) {
  std::string bytes;
  return append_byte_level_bytes(bytes, spelled) ? std::optional(std::move(bytes)) : std::nullopt;
}

}  // namespace lmdeploy
