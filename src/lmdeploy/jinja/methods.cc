// Methods of str, list, tuple, dict and float. Argument 0 is the object itself.
#include <algorithm>
#include <cmath>

#include "lmdeploy/core/error.h"
#include "lmdeploy/jinja/builtin.h"
#include "lmdeploy/jinja/format.h"
#include "lmdeploy/jinja/interpreter.h"
#include "lmdeploy/jinja/print.h"
#include "lmdeploy/jinja/text.h"
#include "lmdeploy/jinja/unicode.h"

namespace lmdeploy::jinja {
namespace {

/// The result of a text method: markup stays markup.
Value same_kind(const Args& args, std::string text) { return Value(std::move(text), args[0].is_markup()); }

Value split_result(const Args& args, const std::vector<std::string_view>& pieces) {
  std::vector<Value> items;
  for (const std::string_view piece : pieces) items.push_back(same_kind(args, std::string(piece)));
  return items;
}

template <std::string (*kConvert)(std::string_view)>
Value convert(Interpreter&, Args& args) {
  return same_kind(args, kConvert(args.text(0)));
}

template <Side kSide>
Value strip(Interpreter&, Args& args) {
  const std::string& text = args.text(0);
  const std::string_view kept =
      args.absent_or_none(1) ? strip_space(text, kSide) : strip_chars(text, args.text(1), kSide);
  return same_kind(args, std::string(kept));
}

// str.isalpha() and its like: every character of the class, and at least one.
template <CharClass kClass>
Value is_all(Interpreter&, Args& args) {
  return all_of_class(args.text(0), kClass);
}
Value is_alnum(Interpreter&, Args& args) {
  return all_of(args.text(0), [](char32_t c) {
    return is_class(c, CharClass::kAlpha) || is_class(c, CharClass::kDecimal) ||
           is_class(c, CharClass::kDigit) || is_class(c, CharClass::kNumeric);
  });
}
Value is_ascii_text(Interpreter&, Args& args) { return args[0].text().ascii(); }
Value is_printable(Interpreter&, Args& args) {
  return args.text(0).empty() || all_of_class(args.text(0), CharClass::kPrintable);
}
Value is_identifier(Interpreter&, Args& args) {
  const std::string& text = args.text(0);
  return all_of_class(text, CharClass::kIdentifierPart) &&
         is_class(decode_at(text, 0).value, CharClass::kIdentifierStart);
}
Value is_upper(Interpreter&, Args& args) { return is_cased_as(args.text(0), CharClass::kUpper); }
Value is_lower(Interpreter&, Args& args) { return is_cased_as(args.text(0), CharClass::kLower); }
Value is_title(Interpreter&, Args& args) { return is_title_case(args.text(0)); }

// The part of the text between the optional arguments `start` (at `first`) and `stop`.
Value part(const Args& args, size_t first) {
  return slice(args[0], args.get(first, {}), args.get(first + 1, {}), {});
}

// Python finds nothing, not even "", where `start` lies behind `stop` or behind the end.
bool is_void_range(const Args& args, size_t first) {
  const auto length = static_cast<Int>(args[0].text().length);
  const auto bound = [&](size_t i, Int absent) {
    if (args.absent_or_none(i)) return absent;
    const Int value = args.integer(i);
    return value < 0 ? std::max<Int>(0, value + length) : value;
  };
  return bound(first, 0) > std::min(bound(first + 1, length), length);
}

// startswith and endswith: one text or a tuple of texts.
template <bool kStart>
Value has_affix(Interpreter&, Args& args) {
  const Value within = part(args, 2);
  const std::vector<Value> affixes = args[1].is_tuple() ? args[1].items() : std::vector<Value>{args[1]};
  for (const Value& affix : affixes) {
    if (!affix.is_text())
      throw Failure(cat(kStart ? "startswith" : "endswith", " first arg must be str or a tuple of str, not ",
                        affix.type_name()));
    if (is_void_range(args, 2)) continue;
    if (kStart ? within.utf8().starts_with(affix.utf8()) : within.utf8().ends_with(affix.utf8())) return true;
  }
  return false;
}

template <bool kPrefix>
Value remove_affix(Interpreter&, Args& args) {
  std::string_view text = args.text(0);
  const std::string& affix = args.text(1);
  if (kPrefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!kPrefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return same_kind(args, std::string(text));
}

// First or last occurrence.
size_t find_from(std::string_view text, std::string_view wanted, bool from_right) {
  if (!from_right) return find_text(text, wanted, 0);
  if (wanted.empty()) return text.size();
  const std::string_view before = split_on(text, wanted, 1, /*from_right=*/true)[0];
  return before.size() == text.size() ? std::string_view::npos : before.size();
}

// find, rfind, index, rindex: in code points of the whole text.
std::optional<size_t> locate(const Args& args, bool from_right) {
  const Value within = part(args, 2);
  const size_t at = find_from(within.utf8(), args.text(1), from_right);
  if (at == std::string::npos || is_void_range(args, 2)) return std::nullopt;
  const Value skipped = slice(args[0], {}, args.get(2, Value(Int{0})), {});
  return (args.absent_or_none(2) ? 0 : skipped.text().length) +
         count_code_points(std::string_view(within.utf8()).substr(0, at));
}
template <bool kFromRight, bool kMustExist>
Value find(Interpreter&, Args& args) {
  const std::optional<size_t> at = locate(args, kFromRight);
  if (!at && kMustExist) throw Failure("substring not found");
  return at ? Value::size(*at) : Value(Int{-1});
}

Value count(Interpreter&, Args& args) {
  const Value within = part(args, 2);
  const std::string& needle = args.text(1);
  if (is_void_range(args, 2)) return Int{0};
  if (needle.empty()) return Value::size(within.text().length + 1);
  Int found = 0;
  for (size_t at = 0; (at = find_text(within.utf8(), needle, at)) != std::string::npos; at += needle.size())
    ++found;
  return found;
}

template <bool kFromRight>
Value split(Interpreter&, Args& args) {
  const Int limit = args.integer(2, -1);
  const size_t max_splits = limit < 0 ? SIZE_MAX : static_cast<size_t>(limit);
  if (args.absent_or_none(1)) return split_result(args, split_on_space(args.text(0), max_splits, kFromRight));
  return split_result(args, split_on(args.text(0), args.text(1), max_splits, kFromRight));
}

Value split_lines_method(Interpreter&, Args& args) {
  return split_result(args, split_lines(args.text(0), args.flag(1, false)));
}

template <bool kFromRight>
Value partition(Interpreter&, Args& args) {
  const std::string& text = args.text(0);
  const std::string& separator = args.text(1);
  if (separator.empty()) throw Failure("empty separator");
  const size_t at = find_from(text, separator, kFromRight);
  std::vector<Value> parts;
  if (at == std::string::npos) {
    parts = {args[0], same_kind(args, ""), same_kind(args, "")};
    if (kFromRight) std::reverse(parts.begin(), parts.end());
  } else {
    parts = {same_kind(args, text.substr(0, at)), same_kind(args, separator),
             same_kind(args, text.substr(at + separator.size()))};
  }
  return Value::tuple(std::move(parts));
}

Value replace(Interpreter&, Args& args) {
  const Int limit = args.integer(3, -1);
  args.text(2);
  const Value with = args[0].is_markup() ? escape(args[2]) : args[2];
  return same_kind(args, replace_text(args.text(0), args.text(1), with.utf8(),
                                      limit < 0 ? SIZE_MAX : static_cast<size_t>(limit)));
}

Value join(Interpreter&, Args& args) {
  const bool markup = args[0].is_markup();
  std::vector<std::string> pieces;
  for (const Value& item : to_vector(args[1])) {
    if (!item.is_text())
      throw Failure(
          cat("sequence item ", pieces.size(), ": expected str instance, ", item.type_name(), " found"));
    pieces.push_back(markup ? escape(item).utf8() : item.utf8());
  }
  return same_kind(args, join_texts(pieces, args.text(0)));
}

enum class Justify { kLeft, kRight, kCenter };
template <Justify kJustify>
Value justify(Interpreter&, Args& args) {
  const std::string fill = args.text(2, " ");
  if (count_code_points(fill) != 1) throw Failure("The fill character must be exactly one character long");
  const size_t length = args[0].text().length;
  const size_t missing = missing_width(args.integer(1), length, fill.size());
  // Python puts the odd blank of an odd width on the left.
  const size_t left = kJustify == Justify::kLeft    ? 0
                      : kJustify == Justify::kRight ? missing
                                                    : missing / 2 + (missing & (length + missing) & 1);
  return same_kind(args, repeat_text(fill, left) + args.text(0) + repeat_text(fill, missing - left));
}

Value zfill(Interpreter&, Args& args) {
  const std::string& text = args.text(0);
  const size_t missing = missing_width(args.integer(1), args[0].text().length, 1);
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return same_kind(args, text.substr(0, sign) + std::string(missing, '0') + text.substr(sign));
}

Value expand_tabs(Interpreter&, Args& args) {
  const Int tab_size = args.integer(1, 8);
  std::string out;
  size_t column = 0;
  const std::string& text = args.text(0);
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_at(text, at);
    if (c.value == '\t' && tab_size > 0) {
      const size_t blanks = static_cast<size_t>(tab_size - static_cast<Int>(column) % tab_size);
      missing_width(static_cast<Int>(out.size() + blanks), 0, 1);  // bounds the size
      out.append(blanks, ' ');
      column += blanks;
    } else if (c.value != '\t') {
      out.append(text, at, c.bytes);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.bytes;
  }
  return same_kind(args, std::move(out));
}

Value format(Interpreter& interpreter, Args& args) { return format_braces(interpreter, args[0], args.rest); }

Value count_items(Interpreter& interpreter, Args& args) {
  Int found = 0;
  for (const Value& item : args[0].items()) found += equal(item, args[1], interpreter.budget()) ? 1 : 0;
  return found;
}

Value index_of(Interpreter& interpreter, Args& args) {
  const Value within = part(args, 2);
  const size_t first = args.absent_or_none(2) ? 0 : slice(args[0], {}, args[2], {}).items().size();
  for (size_t i = 0; i < within.items().size(); ++i)
    if (equal(within.items()[i], args[1], interpreter.budget())) return Value::size(first + i);
  throw Failure(cat(repr(args[1]), " is not in list"));
}

Value copy(Interpreter&, Args& args) { return args[0]; }

// What dict.keys(), values() and items() return: sized and iterable, but not a list.
class DictView final : public Object {
 public:
  enum class Part { kKeys, kValues, kItems };
  DictView(const Value& dict, Part part) : Object(dict), dict_(dict), part_(part) {}
  std::string_view type_name() const override {
    return part_ == Part::kKeys ? "dict_keys" : part_ == Part::kValues ? "dict_values" : "dict_items";
  }
  void print(std::string& out, int depth) const override {
    out += type_name();
    out += '(';
    std::vector<Value> items;
    for (size_t i = 0; i < dict_.dict().entries.size(); ++i) items.push_back(get(i));
    append_repr(out, Value::list(std::move(items)), depth);
    out += ')';
  }
  std::optional<size_t> size() const override { return dict_.dict().entries.size(); }
  Iterator iterate() override {
    return [view = *this, i = size_t{0}]() mutable -> std::optional<Value> {
      if (i == view.dict_.dict().entries.size()) return std::nullopt;
      return view.get(i++);
    };
  }

 private:
  Value get(size_t i) const {
    const auto& [key, value] = dict_.dict().entries[i];
    if (part_ == Part::kItems) return Value::tuple({key, value});
    return part_ == Part::kKeys ? key : value;
  }
  Value dict_;
  Part part_;
};

template <DictView::Part kPart>
Value view(Interpreter&, Args& args) {
  return ObjectPtr(std::make_shared<DictView>(args[0], kPart));
}

Value get(Interpreter&, Args& args) {
  require_hashable(args[1]);
  const Value* found = args[0].dict().find(args[1]);
  return found != nullptr ? *found : args.get(2, {});
}

Value is_integer(Interpreter&, Args& args) { return args[0].as_double() == std::floor(args[0].as_double()); }

constexpr Builtin kTextMethods[] = {
    {"capitalize", "self", convert<capitalize>},
    {"casefold", "self", convert<fold_case>},
    {"center", "self width fill? /", justify<Justify::kCenter>},
    {"count", "self sub start? end? /", count},
    {"endswith", "self suffix start? end? /", has_affix<false>},
    {"expandtabs", "self tabsize?", expand_tabs},
    {"find", "self sub start? end? /", find<false, false>},
    {"format", "self * **", format},
    {"index", "self sub start? end? /", find<false, true>},
    {"isalnum", "self", is_alnum},
    {"isalpha", "self", is_all<CharClass::kAlpha>},
    {"isascii", "self", is_ascii_text},
    {"isdecimal", "self", is_all<CharClass::kDecimal>},
    {"isdigit", "self", is_all<CharClass::kDigit>},
    {"isidentifier", "self", is_identifier},
    {"islower", "self", is_lower},
    {"isnumeric", "self", is_all<CharClass::kNumeric>},
    {"isprintable", "self", is_printable},
    {"isspace", "self", is_all<CharClass::kSpace>},
    {"istitle", "self", is_title},
    {"isupper", "self", is_upper},
    {"join", "self iterable /", join},
    {"ljust", "self width fill? /", justify<Justify::kLeft>},
    {"lower", "self", convert<to_lower>},
    {"lstrip", "self chars? /", strip<Side::kLeft>},
    {"partition", "self sep /", partition<false>},
    {"removeprefix", "self prefix /", remove_affix<true>},
    {"removesuffix", "self suffix /", remove_affix<false>},
    {"replace", "self old new / count?", replace},
    {"rfind", "self sub start? end? /", find<true, false>},
    {"rindex", "self sub start? end? /", find<true, true>},
    {"rjust", "self width fill? /", justify<Justify::kRight>},
    {"rpartition", "self sep /", partition<true>},
    {"rsplit", "self sep? maxsplit?", split<true>},
    {"rstrip", "self chars? /", strip<Side::kRight>},
    {"split", "self sep? maxsplit?", split<false>},
    {"splitlines", "self keepends?", split_lines_method},
    {"startswith", "self prefix start? end? /", has_affix<true>},
    {"strip", "self chars? /", strip<Side::kBoth>},
    {"swapcase", "self", convert<swap_case>},
    {"title", "self", convert<title_case>},
    {"upper", "self", convert<to_upper>},
    {"zfill", "self width /", zfill},
};
constexpr Builtin kListMethods[] = {{"copy", "self", copy},
                                    {"count", "self value /", count_items},
                                    {"index", "self value start? stop? /", index_of}};
constexpr Builtin kTupleMethods[] = {{"count", "self value /", count_items},
                                     {"index", "self value start? stop? /", index_of}};
constexpr Builtin kDictMethods[] = {{"copy", "self", copy},
                                    {"get", "self key default? /", get},
                                    {"items", "self", view<DictView::Part::kItems>},
                                    {"keys", "self", view<DictView::Part::kKeys>},
                                    {"values", "self", view<DictView::Part::kValues>}};
constexpr Builtin kFloatMethods[] = {{"is_integer", "self", is_integer}};

}  // namespace

std::span<const Builtin> text_methods() { return kTextMethods; }
std::span<const Builtin> list_methods() { return kListMethods; }
std::span<const Builtin> tuple_methods() { return kTupleMethods; }
std::span<const Builtin> dict_methods() { return kDictMethods; }
std::span<const Builtin> float_methods() { return kFloatMethods; }

}  // namespace lmdeploy::jinja
