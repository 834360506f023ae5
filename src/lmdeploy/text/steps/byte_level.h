// GPT-2's byte-level alphabet: one printable character for each byte ("Ġ" for a space).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lmdeploy {

/// The character that stands for a byte.
char32_t byte_level_char(uint8_t byte);
/// Spells bytes in the alphabet.
void append_byte_level(std::string& out, std::string_view bytes);
/// Appends the bytes that `spelled` stands for, or says false and appends nothing when it holds a character
/// outside the alphabet.
bool append_byte_level_bytes(std::string& out, std::string_view spelled);
/// The bytes that `spelled` stands for; nothing when it holds a character outside the alphabet.
std::optional<std::string> byte_level_bytes(std::string_view spelled);

}  // namespace lmdeploy
