// Regular expressions as tokenizer files spell them (Oniguruma's Ruby syntax), run by PCRE2 with JIT.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

/// Bytes [begin, end) of some text.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

inline std::string_view slice(std::string_view text, Span span) {
  return text.substr(span.begin, span.end - span.begin);
}

/// Immutable; thread-safe. Unicode-aware: \s, \w, \d and \p{...} mean what they mean to the Rust `regex` and
/// `onig` crates.
class Regex {
 public:
  /// Throws Error(kInvalidData) with the pattern, the offset and the reason.
  explicit Regex(const std::string& pattern);
  ~Regex();
  Regex(Regex&&) noexcept;

  /// Appends all matches in valid UTF-8, leftmost first, without overlap. An empty match right after another
  /// match is left out.
  void find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  void find_known(std::string_view text, std::vector<Span>& matches) const;
  bool find(std::string_view text, size_t from, Span& match) const;
  struct Code;
  std::unique_ptr<Code> code_;
};

/// The same expression in PCRE2's syntax (with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE).
std::string translate_regex(std::string_view pattern);

}  // namespace lmdeploy
