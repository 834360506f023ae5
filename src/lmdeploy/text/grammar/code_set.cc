#include "lmdeploy/text/grammar/code_set.h"

#include <algorithm>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy::grammar {
namespace {

constexpr char32_t kBeforeSurrogates = 0xD7FF, kAfterSurrogates = 0xE000;

void append(CodeSet& set, CodeRange range) {
  if (range.first > range.last) return;
  if (!set.empty() && range.first <= set.back().last + 1)
    set.back().last = std::max(set.back().last, range.last);
  else
    set.push_back(range);
}

CodeSet without_surrogates(const CodeSet& set) {
  CodeSet out;
  for (const CodeRange& range : set) {
    const char32_t before = std::min(range.last, kBeforeSurrogates);
    const char32_t after = std::max(range.first, kAfterSurrogates);
    if (range.first <= before) out.push_back({range.first, before});
    if (after <= range.last) out.push_back({after, range.last});
  }
  return out;
}

}  // namespace

CodeSet make_code_set(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  CodeSet set;
  for (const CodeRange& range : ranges) append(set, range);
  return without_surrogates(set);
}

CodeSet complement(const CodeSet& set) {
  CodeSet out;
  char32_t next = 0;
  for (const CodeRange& range : set) {
    if (range.first > next) out.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) out.push_back({next, kLastCode});
  return without_surrogates(out);
}

const CodeSet& any_code() {
  static const CodeSet all = complement({});
  return all;
}

std::u32string to_codes(std::string_view utf8) {
  std::u32string codes;
  for (size_t at = 0; at < utf8.size();) {
    const Utf8Char c = decode_utf8(utf8, at);
    codes.push_back(c.code);
    at += c.size;
  }
  return codes;
}

}  // namespace lmdeploy::grammar
