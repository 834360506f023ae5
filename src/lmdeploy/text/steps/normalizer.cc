// The normalizers, and reading them.
#include "lmdeploy/text/steps/normalizer.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/files/base64.h"
#include "lmdeploy/text/files/json_fields.h"
#include "lmdeploy/text/steps/byte_level.h"
#include "lmdeploy/text/steps/charsmap.h"
#include "lmdeploy/text/unicode/pattern.h"

namespace lmdeploy {
namespace {

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  std::string apply(std::string text, bool& at_start) const override {
    for (const auto& step : steps_) text = step->apply(std::move(text), at_start);
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  std::string apply(std::string text, bool&) const override { return normalize_unicode(text, form_); }

 private:
  NormalForm form_;
};

// Each character becomes what the function appends for it.
class CharNormalizer : public Normalizer {
 public:
  explicit CharNormalizer(void (*map)(std::string& out, char32_t code)) : map_(map) {}
  std::string apply(std::string text, bool& at_start) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      map_(out, c.code);
      at += c.size;
      if (out.empty()) at_start = false;
    }
    return out;
  }

 private:
  void (*map_)(std::string& out, char32_t code);
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text, bool&) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text, bool& at_start) const override {
    std::vector<Span> matches;
    pattern_->find_all(text, matches);
    // What replaces several characters counts as standing at the last of them.
    if (!matches.empty() && matches[0].begin == 0 && matches[0].size() > 0)
      at_start = at_start && !content_.empty() && decode_utf8(text, 0).size == matches[0].size();
    return replace_matches(text, matches, content_);
  }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text, bool& at_start) const override {
    if (right_) text.erase(text.size() - trailing_white_space(text));
    const size_t dropped = left_ ? leading_white_space(text) : 0;
    if (dropped > 0) at_start = false;
    text.erase(0, dropped);
    return text;
  }

 private:
  bool left_, right_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  std::string apply(std::string text, bool&) const override {
    std::string out;
    append_byte_level(out, text);
    return out;
  }
};

// "BertNormalizer": white space and control characters made plain, spaces around Chinese characters, accents
// off, lower case.

struct BertOptions {
  bool clean_text, handle_chinese_chars, strip_accents, lowercase;
};

bool is_chinese(char32_t code) {
  // As the library has it: the fourth extension begins at 2B920 there instead of 2B820.
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

void append_cleaned(std::string& out, char32_t code) {
  const bool is_break = code == '\t' || code == '\n' || code == '\r';
  if (code == 0 || code == 0xFFFD || (!is_break && is_control(code))) return;
  append_utf8(out, is_white_space(code) ? U' ' : code);
}

void append_spaced(std::string& out, char32_t code) {
  if (!is_chinese(code)) return append_utf8(out, code);
  out.push_back(' ');
  append_utf8(out, code);
  out.push_back(' ');
}

void append_without_accents(std::string& out, char32_t code) {
  if (!is_nonspacing_mark(code)) append_utf8(out, code);
}

std::unique_ptr<Normalizer> make_bert_normalizer(const BertOptions& options) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  const auto add = [&](void (*map)(std::string&, char32_t)) {
    steps.push_back(std::make_unique<CharNormalizer>(map));
  };
  if (options.clean_text) add(&append_cleaned);
  if (options.handle_chinese_chars) add(&append_spaced);
  if (options.strip_accents) {
    steps.push_back(make_unicode_normalizer(NormalForm::kNfd));
    add(&append_without_accents);
  }
  if (options.lowercase) add(&append_lower);
  return make_normalizer_sequence(std::move(steps));
}

std::unique_ptr<Normalizer> read_bert(const JsonFields& fields) {
  const bool lowercase = fields.get_bool("lowercase", true);
  return make_bert_normalizer({.clean_text = fields.get_bool("clean_text", true),
                               .handle_chinese_chars = fields.get_bool("handle_chinese_chars", true),
                               .strip_accents = fields.get_bool("strip_accents", lowercase),
                               .lowercase = lowercase});
}

// "Nmt", after SentencePiece's rule nmt_nfkc: control characters go, kinds of white space become a space.
void append_nmt(std::string& out, char32_t code) {
  const bool dropped = (code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) ||
                       code == 0x7F || code == 0x8F || code == 0x9F;
  const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                     (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                     code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  if (!dropped) append_utf8(out, space ? U' ' : code);
}

// "Precompiled". Clusters of up to five bytes are replaced as a whole when they only begin with an entry, and
// the shortest entry counts: both is how the library does it, and not how SentencePiece does.
class Precompiled : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  std::string apply(std::string text, bool& at_start) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (at > 0 && out.empty()) at_start = false;
      const std::string_view rest = std::string_view(text).substr(at);
      const std::string_view cluster = rest.substr(0, grapheme_cluster_size(rest));
      at += cluster.size();
      if (const auto whole = map_.shortest(cluster); whole && cluster.size() < 6) {
        out.append(whole->replacement);
      } else {
        append_chars(cluster, out);
      }
    }
    return out;
  }

 private:
  void append_chars(std::string_view cluster, std::string& out) const {
    for (size_t at = 0; at < cluster.size();) {
      const std::string_view unit = cluster.substr(at, decode_utf8(cluster, at).size);
      const auto found = map_.shortest(unit);
      out.append(found ? found->replacement : unit);
      at += unit.size();
    }
  }

  Charsmap map_;
};

std::unique_ptr<Normalizer> read_precompiled(const JsonFields& fields) {
  const auto bytes = decode_base64(fields.require_string("precompiled_charsmap"));
  if (!bytes) fields.fail("precompiled_charsmap", fields.require("precompiled_charsmap"), "base64");
  return std::make_unique<Precompiled>(Charsmap(*bytes, cat(fields.where(), ": precompiled_charsmap")));
}

std::unique_ptr<Normalizer> read_sequence(const JsonFields& fields) {
  std::vector<std::unique_ptr<Normalizer>> steps;
  for (const Json& step : fields.get_array("normalizers"))
    steps.push_back(read_normalizer(step, cat(fields.where(), ": [", steps.size(), "]")));
  return make_normalizer_sequence(std::move(steps));
}

}  // namespace

std::unique_ptr<Normalizer> make_unicode_normalizer(NormalForm form) {
  return std::make_unique<UnicodeNormalizer>(form);
}

std::unique_ptr<Normalizer> make_prepend_normalizer(std::string text) {
  return std::make_unique<Prepend>(std::move(text));
}

std::unique_ptr<Normalizer> make_replace_normalizer(std::string literal, std::string content) {
  return std::make_unique<Replace>(make_literal_pattern(std::move(literal)), std::move(content));
}

std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps) {
  return std::make_unique<Sequence>(std::move(steps));
}

std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where) {
  const JsonFields fields(json, where);
  const std::string type = fields.require_string("type");
  if (type == "Sequence") return read_sequence(fields);
  if (type == "NFC") return make_unicode_normalizer(NormalForm::kNfc);
  if (type == "NFD") return make_unicode_normalizer(NormalForm::kNfd);
  if (type == "NFKC") return make_unicode_normalizer(NormalForm::kNfkc);
  if (type == "NFKD") return make_unicode_normalizer(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<CharNormalizer>(&append_lower);
  if (type == "StripAccents")
    return std::make_unique<CharNormalizer>([](std::string& out, char32_t code) {
      if (!is_mark(code)) append_utf8(out, code);
    });
  if (type == "Prepend") return make_prepend_normalizer(fields.require_string("prepend"));
  if (type == "Replace")
    return std::make_unique<Replace>(read_pattern(fields), fields.require_string("content"));
  if (type == "Strip")
    return std::make_unique<Strip>(fields.get_bool("strip_left", true), fields.get_bool("strip_right", true));
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "BertNormalizer") return read_bert(fields);
  if (type == "Nmt") return std::make_unique<CharNormalizer>(&append_nmt);
  if (type == "Precompiled") return read_precompiled(fields);
  throw Error(ErrorCode::kUnsupported,
              cat(where, ": normalizer \"", type,
                  "\" is not supported; supported: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
                  "Prepend, Replace, Strip, ByteLevel, BertNormalizer, Nmt, Precompiled"));
}

}  // namespace lmdeploy
