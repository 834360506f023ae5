// The single steps that decoders are made of.
#pragma once

#include <memory>
#include <string>

#include "lmdeploy/text/steps/decoder.h"
#include "lmdeploy/text/unicode/pattern.h"

namespace lmdeploy {

/// Joins all tokens: the text of the bytes that their characters stand for in the byte-level alphabet. A
/// token with a character outside the alphabet stands for its own bytes.
std::unique_ptr<Decoder> make_byte_level_step();
/// A run of <0xHH> tokens becomes their bytes' text, or one U+FFFD a byte when the whole run is no UTF-8.
std::unique_ptr<Decoder> make_byte_fallback_step();
/// Joins all tokens.
std::unique_ptr<Decoder> make_fuse_step();
/// Puts a space between tokens.
std::unique_ptr<Decoder> make_join_step();
/// Replaces a literal (not empty) in each token.
std::unique_ptr<Decoder> make_replace_step(std::string literal, std::string content);
/// Replaces matches of a pattern in each token.
std::unique_ptr<Decoder> make_replace_step(std::unique_ptr<Pattern> pattern, std::string content);
/// Takes up to `left` and `right` copies of the character `content` off the ends of each token.
std::unique_ptr<Decoder> make_strip_step(std::string content, int left, int right);
/// Replaces a character by a space; in the first token by nothing when `drop_in_first`.
std::unique_ptr<Decoder> make_metaspace_step(std::string replacement, bool drop_in_first);
/// Replaces the end-of-word suffix by a space; in the last token by nothing.
std::unique_ptr<Decoder> make_word_suffix_step(std::string suffix);
/// A space before each token but the first and those that begin with `prefix`, which goes. `cleanup`: no
/// space before ".", "n't", ...
std::unique_ptr<Decoder> make_word_piece_step(std::string prefix, bool cleanup);

struct CtcOptions {
  std::string pad_token;       // replaced by nothing
  std::string word_delimiter;  // replaced by a space when `cleanup`
  bool cleanup = true;         // as for WordPiece
};
/// Of equal tokens in a row, the first.
std::unique_ptr<Decoder> make_ctc_step(CtcOptions options);

}  // namespace lmdeploy
