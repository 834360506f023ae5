// Looks up the table of added characters.
#include "lmdeploy/text/unicode/unicode_additions.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <iterator>

#include "lmdeploy/core/utf8.h"

namespace lmdeploy {
namespace {

struct Addition {
  char32_t first, last;
  utf8proc_category_t category;
};
constexpr Addition kAdditions[] = {
#include "lmdeploy/text/unicode/unicode_additions.inc"
};

struct Run {
  char32_t first, last;
  int since;  // the version of Unicode that added them; 10: or a later one
};
constexpr Run kRecent[] = {
#include "lmdeploy/text/unicode/unicode_recent.inc"
};

// Characters that have changed their category since Unicode 8 or 9, where that decides what is punctuation, a
// mark or a control character (DerivedGeneralCategory.txt of both versions).
struct Change {
  char32_t code;
  int until;  // the last version with this category
  utf8proc_category_t category;
};
constexpr Change kChanges[] = {
    {0x166D, 9, UTF8PROC_CATEGORY_PO}, {0x1734, 9, UTF8PROC_CATEGORY_MN},  {0x1885, 8, UTF8PROC_CATEGORY_LO},
    {0x1886, 8, UTF8PROC_CATEGORY_LO}, {0x1CF2, 9, UTF8PROC_CATEGORY_MC},  {0x1CF3, 9, UTF8PROC_CATEGORY_MC},
    {0xA9BD, 9, UTF8PROC_CATEGORY_MC}, {0x111C9, 9, UTF8PROC_CATEGORY_PO}, {0x1171E, 9, UTF8PROC_CATEGORY_MN},
};

struct Twin {
  utf8proc_category_t category;
  char32_t three_bytes, four_bytes;  // an older character with so long a UTF-8 form
};
constexpr Twin kTwins[] = {{UTF8PROC_CATEGORY_LU, 0x1E00, 0x10400}, {UTF8PROC_CATEGORY_LL, 0x1E01, 0x10428},
                           {UTF8PROC_CATEGORY_LM, 0x2C7C, 0x16F93}, {UTF8PROC_CATEGORY_LO, 0x1401, 0x10000},
                           {UTF8PROC_CATEGORY_MN, 0x1AB0, 0x101FD}, {UTF8PROC_CATEGORY_MC, 0x0903, 0x11000},
                           {UTF8PROC_CATEGORY_ND, 0x0966, 0x104A0}, {UTF8PROC_CATEGORY_NO, 0x2460, 0x10107},
                           {UTF8PROC_CATEGORY_PD, 0x2010, 0x10EAD}, {UTF8PROC_CATEGORY_PO, 0x1360, 0x10100},
                           {UTF8PROC_CATEGORY_SM, 0x2200, 0x1D6C1}, {UTF8PROC_CATEGORY_SO, 0x2300, 0x1D300},
                           {UTF8PROC_CATEGORY_CF, 0x2060, 0xE0001}};

// 256-character pages that hold an addition: most text never gets past this.
const std::bitset<0x1100>& pages() {
  static const std::bitset<0x1100> kPages = [] {
    std::bitset<0x1100> found;
    for (const Addition& run : kAdditions)
      for (char32_t page = run.first >> 8; page <= run.last >> 8; ++page) found.set(page);
    return found;
  }();
  return kPages;
}

const Addition* find_addition(char32_t code) {
  if (code < kAdditions[0].first || !pages().test(code >> 8)) return nullptr;
  const auto* run = std::lower_bound(std::begin(kAdditions), std::end(kAdditions), code,
                                     [](const Addition& a, char32_t c) { return a.last < c; });
  return run != std::end(kAdditions) && run->first <= code ? run : nullptr;
}

}  // namespace

int general_category(char32_t code) {
  const Addition* added = find_addition(code);
  return added != nullptr ? added->category : utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool newer_than_unicode(int version, char32_t code) {
  if (code < kRecent[0].first) return false;
  const auto* run = std::lower_bound(std::begin(kRecent), std::end(kRecent), code,
                                     [](const Run& r, char32_t c) { return r.last < c; });
  if (run != std::end(kRecent) && run->first <= code) return run->since > version;
  return find_addition(code) != nullptr && code != 0x1171E;  // which is old and has changed its category
}

int category_in_unicode(int version, char32_t code) {
  if (newer_than_unicode(version, code)) return UTF8PROC_CATEGORY_CN;
  for (const Change& change : kChanges)
    if (change.code == code && version <= change.until) return change.category;
  return general_category(code);
}

char32_t older_twin(char32_t code) {
  const Addition* added = find_addition(code);
  if (added == nullptr) return code;
  if (code >= 0x20000 && code < 0x40000) return 0x20000;   // a Han character, which \p{Han} must find
  if (code >= 0x1F300 && code <= 0x1FAFF) return 0x1F600;  // an emoji
  for (const Twin& twin : kTwins)
    if (twin.category == added->category) return code < 0x10000 ? twin.three_bytes : twin.four_bytes;
  return code;
}

bool holds_additions(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (find_addition(c.code) != nullptr) return true;
    at += c.size;
  }
  return false;
}

std::string with_older_twins(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    append_utf8(out, older_twin(c.code));
    at += c.size;
  }
  return out;
}

}  // namespace lmdeploy
