// The normalizers, and reading them.
#include "lmdeploy/text/normalizer.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/byte_level.h"
#include "lmdeploy/text/json_fields.h"
#include "lmdeploy/text/pattern.h"

namespace lmdeploy {
namespace {

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  std::string apply(std::string text) const override {
    for (const auto& step : steps_) text = step->apply(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalForm form) : form_(form) {}
  std::string apply(std::string text) const override { return normalize_unicode(text, form_); }

 private:
  NormalForm form_;
};

// Each character becomes what the function appends for it.
class CharNormalizer : public Normalizer {
 public:
  explicit CharNormalizer(void (*map)(std::string& out, char32_t code)) : map_(map) {}
  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      map_(out, c.code);
      at += c.size;
    }
    return out;
  }

 private:
  void (*map_)(std::string& out, char32_t code);
};

class Prepend : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string text) const override { return text.empty() ? text : prefix_ + text; }

 private:
  std::string prefix_;
};

class Replace : public Normalizer {
 public:
  Replace(std::unique_ptr<Pattern> pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text) const override { return replace_all(text, *pattern_, content_); }

 private:
  std::unique_ptr<Pattern> pattern_;
  std::string content_;
};

class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text) const override {
    if (right_) text.erase(text.size() - trailing_white_space(text));
    if (left_) text.erase(0, leading_white_space(text));
    return text;
  }

 private:
  bool left_, right_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  std::string apply(std::string text) const override {
    std::string out;
    append_byte_level(out, text);
    return out;
  }
};

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
  throw Error(ErrorCode::kUnsupported,
              cat(where, ": normalizer \"", type,
                  "\" is not supported; supported: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, "
                  "Prepend, Replace, Strip, ByteLevel"));
}

}  // namespace lmdeploy
