#include "lmdeploy/formats/turbomind/ini.h"

#include <charconv>
#include <cmath>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/formats/quote.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kBlanks = " \t\r\f\v";

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 0x20);
  return out;
}

/// Lines of one file, and the section that is wanted.
class IniReader {
 public:
  IniReader(std::string_view section, std::string_view where) : section_(section), where_(where) {}

  JsonObject read(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      ++line_;
      read_line(text.substr(0, end));
      text.remove_prefix(std::min(text.size(), end + 1));
    }
    if (!found_) throw Error(ErrorCode::kInvalidData, cat(where_, ": there is no section [", section_, "]"));
    return std::move(keys_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorCode::kInvalidData, cat(where_, ": line ", line_, ": ", what));
  }

  void read_line(std::string_view raw) {
    const std::string_view line = trimmed(raw);
    if (line.empty() || line[0] == '#' || line[0] == ';') return;
    if (!is_utf8(line)) fail("the text is no UTF-8");
    if (kBlanks.find(raw[0]) != kBlanks.npos)
      fail(cat(quote(line), " is indented: values that go on in a second line are not supported"));
    if (line[0] == '[')
      begin_section(line);
    else
      add_key(line);
  }

  void begin_section(std::string_view line) {
    if (line.back() != ']') fail(cat(quote(line), " begins a section, but does not end with ]"));
    inside_ = line.substr(1, line.size() - 2) == section_;
    if (inside_ && found_) fail(cat("section [", section_, "] is there twice"));
    any_section_ = true;
    found_ |= inside_;
  }

  void add_key(std::string_view line) {
    const size_t sign = line.find_first_of("=:");
    if (sign == line.npos || sign == 0) fail(cat(quote(line), " is neither \"key = value\" nor a section"));
    if (!any_section_) fail(cat(quote(line), " stands before the first section"));
    if (!inside_) return;
    const std::string key = lower(trimmed(line.substr(0, sign)));
    if (keys_.contains(key)) fail(cat("key ", quote(key), " is there twice"));
    keys_[key] = scalar_from_text(trimmed(line.substr(sign + 1)));
  }

  std::string_view section_, where_;
  JsonObject keys_;
  int64_t line_ = 0;
  bool any_section_ = false, inside_ = false, found_ = false;
};

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

Json scalar_from_text(std::string_view text) {
  int64_t integer = 0;
  double number = 0;
  if (parse_number(text, integer)) return integer;
  if (parse_number(text, number) && std::isfinite(number)) return number;
  if (lower(text) == "true") return true;
  if (lower(text) == "false") return false;
  return Json(text);
}

JsonObject parse_ini(std::string_view text, std::string_view section, std::string_view where) {
  return IniReader(section, where).read(text);
}

}  // namespace lmdeploy
