// UTF-8 by the rules of Unicode 15, section 3.9.
#include "lmdeploy/core/utf8.h"

#include <cstring>

namespace lmdeploy {
namespace {

enum class Sequence { kValid, kInvalid, kIncomplete };

struct Step {
  Sequence kind = Sequence::kValid;
  size_t size = 1;  // bytes of the character or of the maximal invalid part
};

// Range of the second byte, which excludes overlong forms, surrogates and code points past U+10FFFF
// (Unicode 15, table 3-7).
bool second_byte_fits(uint8_t lead, uint8_t second) {
  if (lead == 0xE0) return second >= 0xA0 && second <= 0xBF;
  if (lead == 0xED) return second >= 0x80 && second <= 0x9F;
  if (lead == 0xF0) return second >= 0x90 && second <= 0xBF;
  if (lead == 0xF4) return second >= 0x80 && second <= 0x8F;
  return (second & 0xC0) == 0x80;
}

Step scan(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(at);
  if (lead < 0x80) return {Sequence::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Sequence::kInvalid, 1};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < size; ++i) {
    if (at + i == text.size()) return {Sequence::kIncomplete, i};
    const bool fits = i == 1 ? second_byte_fits(lead, byte(at + 1)) : (byte(at + i) & 0xC0) == 0x80;
    if (!fits) return {Sequence::kInvalid, i};
  }
  return {Sequence::kValid, size};
}

// Length of the leading run of ASCII, a word at a time.
size_t ascii_prefix(std::string_view text, size_t from) {
  size_t i = from;
  for (uint64_t word; i + sizeof(word) <= text.size(); i += sizeof(word)) {
    std::memcpy(&word, text.data() + i, sizeof(word));
    if ((word & 0x8080808080808080ull) != 0) break;
  }
  while (i < text.size() && static_cast<uint8_t>(text[i]) < 0x80) ++i;
  return i - from;
}

// Appends the repaired text; returns how many bytes at the end begin an unfinished character.
size_t repair(std::string_view bytes, std::string& out) {
  size_t start = 0;  // of a run that is copied as it is
  size_t at = ascii_prefix(bytes, 0);
  while (at < bytes.size()) {
    const Step step = scan(bytes, at);
    if (step.kind == Sequence::kValid) {
      at += step.size;
      at += ascii_prefix(bytes, at);
      continue;
    }
    out.append(bytes.substr(start, at - start));
    if (step.kind == Sequence::kIncomplete) return step.size;
    out.append(kReplacementChar);
    at += step.size;
    start = at;
  }
  out.append(bytes.substr(start));
  return 0;
}

}  // namespace

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F))); };
  if (code < 0x80) {
    out.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_utf8(std::string_view text) {
  for (size_t at = ascii_prefix(text, 0); at < text.size(); at += ascii_prefix(text, at)) {
    const Step step = scan(text, at);
    if (step.kind != Sequence::kValid) return false;
    at += step.size;
  }
  return true;
}

bool is_ascii(std::string_view text) { return ascii_prefix(text, 0) == text.size(); }

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  if (repair(bytes, out) > 0) out.append(kReplacementChar);
  return out;
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!pending_.empty()) {
    joined = pending_.append(bytes);
    bytes = joined;
  }
  const size_t unfinished = repair(bytes, out);
  pending_.assign(bytes.substr(bytes.size() - unfinished));
}

void Utf8Assembler::finish(std::string& out) {
  if (!pending_.empty()) out.append(kReplacementChar);
  pending_.clear();
}

}  // namespace lmdeploy
