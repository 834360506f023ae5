// The pre-tokenizers, and reading them.
#include "lmdeploy/text/steps/pre_tokenizer.h"

#include <algorithm>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/steps/byte_level.h"
#include "lmdeploy/text/unicode/unicode.h"

namespace lmdeploy {

// Source: encoder.py of openai/gpt-2.
const char* const kGpt2Regex =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

namespace {

// What "Whitespace" keeps: \w+|[^\w\s]+ of the Rust crate `regex`, whose \w is not that of Oniguruma.
constexpr const char* kWordsAndSigns =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]+|"
    "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}\\s]+";

struct Part {
  Span span;
  bool matched = false;
};

// Matches and what lies between them, in order. Empty matches count (they delimit).
void cut(size_t text_size, const std::vector<Span>& matches, bool invert, std::vector<Part>& parts) {
  parts.clear();
  size_t from = 0;
  for (const Span match : matches) {
    if (match.begin > from) parts.push_back({{from, match.begin}, invert});
    parts.push_back({match, !invert});
    from = match.end;
  }
  if (from < text_size) parts.push_back({{from, text_size}, invert});
}

// Joins each match with the part before it, unless that is a match too (or there is none).
void merge_with_previous(std::vector<Part>& parts) {
  size_t kept = 0;
  bool previous_matched = false;
  for (const Part part : parts) {
    if (part.matched && !previous_matched && kept > 0) {
      parts[kept - 1].span.end = part.span.end;
    } else {
      parts[kept++] = part;
    }
    previous_matched = part.matched;
  }
  parts.resize(kept);
}

void merge_with_next(std::vector<Part>& parts) {
  size_t kept = parts.size();
  bool next_matched = false;
  for (size_t i = parts.size(); i-- > 0;) {
    const Part part = parts[i];
    if (part.matched && !next_matched && kept < parts.size()) {
      parts[kept].span.begin = part.span.begin;
    } else {
      parts[--kept] = part;
    }
    next_matched = part.matched;
  }
  parts.erase(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(kept));
}

void merge_runs(std::vector<Part>& parts) {
  size_t kept = 0;
  bool previous_matched = false;
  for (const Part part : parts) {
    if (part.matched == previous_matched && kept > 0) {
      parts[kept - 1].span.end = part.span.end;
    } else {
      parts[kept++] = part;
    }
    previous_matched = part.matched;
  }
  parts.resize(kept);
}

void arrange(std::vector<Part>& parts, SplitBehavior behavior) {
  switch (behavior) {
    case SplitBehavior::kIsolated:  // needs no arranging
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(parts, [](const Part& part) { return part.matched; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return merge_with_previous(parts);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(parts);
    case SplitBehavior::kContiguous:
      return merge_runs(parts);
  }
}

class Split : public PreTokenizer {
 public:
  Split(std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void apply(Words& words) const override {
    std::vector<Span> spans, matches;
    std::vector<Part> parts;
    spans.reserve(words.spans.size());
    for (const Span word : words.spans) {
      matches.clear();
      pattern_->find_all(slice(words.text, word), matches);
      if (behavior_ == SplitBehavior::kIsolated) {
        isolate(word, matches, spans);
        continue;
      }
      cut(word.size(), matches, invert_, parts);
      arrange(parts, behavior_);
      for (const Part& part : parts)
        if (part.span.size() > 0) spans.push_back({word.begin + part.span.begin, word.begin + part.span.end});
    }
    const bool first_kept = !spans.empty() && spans[0].begin == words.spans[0].begin;
    words.at_start = words.at_start && first_kept;
    words.spans = std::move(spans);
  }

 private:
  // cut() without parts; inverting makes no difference
  static void isolate(Span word, const std::vector<Span>& matches, std::vector<Span>& spans) {
    size_t from = word.begin;
    for (const Span match : matches) {
      const Span found = {word.begin + match.begin, word.begin + match.end};
      if (found.begin > from) spans.push_back({from, found.begin});
      if (found.size() > 0) spans.push_back(found);
      from = found.end;
    }
    if (from < word.end) spans.push_back({from, word.end});
  }

  std::unique_ptr<Pattern> pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(int length) : length_(length) {}
  void apply(Words& words) const override {
    std::vector<Span> spans;
    for (const Span word : words.spans) {
      Span span = {word.begin, word.begin};
      for (int chars = 0; span.end < word.end;) {
        span.end += decode_utf8(words.text, span.end).size;
        if (++chars < length_ && span.end < word.end) continue;
        spans.push_back(span);
        span.begin = span.end;
        chars = 0;
      }
    }
    words.spans = std::move(spans);
  }

 private:
  int length_;
};

// Steps that write each word anew.
class Rewrite : public PreTokenizer {
 public:
  void apply(Words& words) const override {
    std::string text;
    text.reserve(words.text.size() + words.text.size() / 4);
    for (size_t i = 0; i < words.spans.size(); ++i) {
      const size_t begin = text.size();
      rewrite(slice(words.text, words.spans[i]), words.at_start && i == 0, text);
      words.spans[i] = {begin, text.size()};
    }
    words.text = std::move(text);
  }

 private:
  /// Appends the new word, which must not be empty. `at_start`: the word begins where the input text does.
  virtual void rewrite(std::string_view word, bool at_start, std::string& out) const = 0;
};

class SpellBytes : public Rewrite {
  void rewrite(std::string_view word, bool, std::string& out) const override { append_byte_level(out, word); }
};

class PrefixSpace : public Rewrite {
  void rewrite(std::string_view word, bool, std::string& out) const override {
    if (!word.starts_with(' ')) out.push_back(' ');
    out.append(word);
  }
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace : public Rewrite {
 public:
  Metaspace(std::string replacement, PrependScheme scheme)
      : replacement_(std::move(replacement)), scheme_(scheme) {}

 private:
  void rewrite(std::string_view word, bool at_start, std::string& out) const override {
    const bool wanted = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start);
    if (wanted && !word.starts_with(' ') && !word.starts_with(replacement_)) out.append(replacement_);
    for (const char c : word) c == ' ' ? void(out.append(replacement_)) : out.push_back(c);
  }

  std::string replacement_;
  PrependScheme scheme_;
};

using Steps = std::vector<std::unique_ptr<PreTokenizer>>;

void add_split(Steps& steps, std::unique_ptr<Pattern> pattern, SplitBehavior behavior, bool invert = false) {
  steps.push_back(std::make_unique<Split>(std::move(pattern), behavior, invert));
}

SplitBehavior read_behavior(const JsonFields& fields, std::string_view fallback) {
  const std::string name = fields.get_string("behavior").value_or(std::string(fallback));
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  fields.fail("behavior", Json(name), "Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

// Files before tokenizers 0.15 have add_prefix_space instead of prepend_scheme.
PrependScheme read_prepend_scheme(const JsonFields& fields) {
  const std::string name = fields.get_string("prepend_scheme").value_or("always");
  if (!fields.get_bool("add_prefix_space", true)) return PrependScheme::kNever;
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  fields.fail("prepend_scheme", Json(name), "always, first or never");
}

void add_metaspace(const JsonFields& fields, Steps& steps) {
  const std::string replacement = fields.get_string("replacement").value_or("\u2581");
  if (replacement.empty() || decode_utf8(replacement, 0).size != replacement.size())
    fields.fail("replacement", Json(replacement), "one character");
  steps.push_back(std::make_unique<Metaspace>(replacement, read_prepend_scheme(fields)));
  if (fields.get_bool("split", true))
    add_split(steps, make_literal_pattern(replacement), SplitBehavior::kMergedWithNext);
}

void add_byte_level(const JsonFields& fields, Steps& steps) {
  if (fields.get_bool("add_prefix_space", true)) steps.push_back(std::make_unique<PrefixSpace>());
  if (fields.get_bool("use_regex", true))
    add_split(steps, make_regex_pattern(kGpt2Regex), SplitBehavior::kIsolated);
}

void add_char_delimiter(const JsonFields& fields, Steps& steps) {
  std::string delimiter = fields.require_string("delimiter");
  if (delimiter.empty() || decode_utf8(delimiter, 0).size != delimiter.size())
    fields.fail("delimiter", Json(delimiter), "one character");
  add_split(steps, make_literal_pattern(std::move(delimiter)), SplitBehavior::kRemoved);
}

void add_fixed_length(const JsonFields& fields, Steps& steps) {
  const int length = fields.get_count("length", 1 << 30).value_or(5);
  if (length == 0) fields.fail("length", Json(length), "at least 1");
  steps.push_back(std::make_unique<FixedLength>(length));
}

void read_steps(const Json& json, const std::string& where, PreTokenizerChain& chain) {
  const JsonFields fields(json, where);
  const std::string type = fields.require_string("type");
  Steps& steps = chain.steps;
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& step : fields.get_array("pretokenizers"))
      read_steps(step, cat(where, ": [", i++, "]"), chain);
    return;
  }
  spell_bytes(chain);  // the step before was not the last
  if (type == "ByteLevel") {
    add_byte_level(fields, steps);
    chain.ends_in_bytes = true;
  } else if (type == "Split") {
    add_split(steps, read_pattern(fields), read_behavior(fields, "Isolated"),
              fields.get_bool("invert", false));
  } else if (type == "Digits") {
    const bool individual = fields.get_bool("individual_digits", false);
    add_split(steps, make_char_pattern(&is_numeric),
              individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
  } else if (type == "Metaspace") {
    add_metaspace(fields, steps);
  } else if (type == "Whitespace") {
    add_split(steps, make_regex_pattern(kWordsAndSigns), SplitBehavior::kRemoved, /*invert=*/true);
  } else if (type == "WhitespaceSplit") {
    add_split(steps, make_char_pattern(&is_white_space), SplitBehavior::kRemoved);
  } else if (type == "Punctuation") {
    add_split(steps, make_char_pattern(&is_punctuation), read_behavior(fields, "Isolated"));
  } else if (type == "BertPreTokenizer") {
    add_split(steps, make_char_pattern(&is_white_space), SplitBehavior::kRemoved);
    add_split(steps, make_char_pattern(&is_punctuation), SplitBehavior::kIsolated);
  } else if (type == "CharDelimiterSplit") {
    add_char_delimiter(fields, steps);
  } else if (type == "FixedLength") {
    add_fixed_length(fields, steps);
  } else if (type == "UnicodeScripts") {
    add_split(steps, make_script_pattern(), SplitBehavior::kRemoved, /*invert=*/true);
  } else {
    throw Error(
        ErrorCode::kUnsupported,
        cat(where, ": pre-tokenizer \"", type,
            "\" is not supported; supported: Sequence, ByteLevel, Split, Digits, Metaspace, Whitespace, "
            "WhitespaceSplit, Punctuation, BertPreTokenizer, CharDelimiterSplit, FixedLength, "
            "UnicodeScripts"));
  }
}

}  // namespace

PreTokenizerChain read_pre_tokenizer(const Json& json, const std::string& where) {
  PreTokenizerChain chain;
  read_steps(json, where, chain);
  return chain;
}

PreTokenizerChain make_regex_pre_tokenizer(const std::vector<std::string>& regexes) {
  PreTokenizerChain chain;
  for (const std::string& regex : regexes)
    add_split(chain.steps, make_regex_pattern(regex), SplitBehavior::kIsolated);
  chain.ends_in_bytes = true;
  return chain;
}

PreTokenizerChain make_matching_pre_tokenizer(const std::string& regex) {
  PreTokenizerChain chain;
  add_split(chain.steps, make_regex_pattern(regex), SplitBehavior::kRemoved, /*invert=*/true);
  chain.ends_in_bytes = true;
  return chain;
}

PreTokenizerChain make_prefix_pre_tokenizer(std::string prefix) {
  PreTokenizerChain chain;
  chain.steps.push_back(std::make_unique<Metaspace>(std::move(prefix), PrependScheme::kFirst));
  return chain;
}

void spell_bytes(PreTokenizerChain& chain) {
  if (chain.ends_in_bytes) chain.steps.push_back(std::make_unique<SpellBytes>());
  chain.ends_in_bytes = false;
}

}  // namespace lmdeploy
