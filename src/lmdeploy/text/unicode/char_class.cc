// Classes from general categories, and the table of them.
#include "lmdeploy/text/unicode/char_class.h"

#include <utf8proc.h>

#include <map>

#include "lmdeploy/text/unicode/unicode.h"
#include "lmdeploy/text/unicode/unicode_additions.h"

namespace lmdeploy {

uint8_t compute_char_class(char32_t code) {
  using namespace char_class;
  if (code == '\r' || code == '\n') return kSpace | kBreak;
  if (is_white_space(code)) return kSpace;
  switch (general_category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LT:
      return kLetter | kOpening;
    case UTF8PROC_CATEGORY_LL:
      return kLetter | kClosing;
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return kLetter | kOpening | kClosing;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return kMark | kOpening | kClosing;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return kNumber;
    default:
      return 0;
  }
}

const CharClassTable& CharClassTable::get() {
  static const CharClassTable kTable;
  return kTable;
}

CharClassTable::CharClassTable() {
  std::map<std::array<uint8_t, kPageSize>, uint32_t> known;
  for (char32_t page = 0; page < page_of_.size(); ++page) {
    std::array<uint8_t, kPageSize> classes;
    for (char32_t i = 0; i < kPageSize; ++i) classes[i] = compute_char_class(page * kPageSize + i);
    const auto [found, is_new] = known.emplace(classes, static_cast<uint32_t>(pages_.size()));
    if (is_new) pages_.insert(pages_.end(), classes.begin(), classes.end());
    page_of_[page] = found->second;
  }
}

}  // namespace lmdeploy
