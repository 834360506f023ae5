// Normalizers of tokenizer.json: what happens to text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/text/unicode/unicode.h"

namespace lmdeploy {

/// Immutable; thread-safe. Valid UTF-8 in, valid UTF-8 out.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  /// `at_start`: whether the text begins where the input does. A step that drops its beginning makes it
  /// false.
  virtual std::string apply(std::string text, bool& at_start) const = 0;
  std::string apply(std::string text) const {
    bool at_start = true;
    return apply(std::move(text), at_start);
  }
};

/// From the JSON object of a normalizer. Throws Error(kUnsupported) naming a type that is not supported.
std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where);

std::unique_ptr<Normalizer> make_unicode_normalizer(NormalForm form);
std::unique_ptr<Normalizer> make_prepend_normalizer(std::string text);
std::unique_ptr<Normalizer> make_replace_normalizer(std::string literal, std::string content);
std::unique_ptr<Normalizer> make_normalizer_sequence(std::vector<std::unique_ptr<Normalizer>> steps);

}  // namespace lmdeploy
