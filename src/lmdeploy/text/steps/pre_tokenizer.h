// Pre-tokenizers of tokenizer.json: text is cut into words, inside which the model works.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lmdeploy/core/json.h"
#include "lmdeploy/text/unicode/pattern.h"

namespace lmdeploy {

/// Text and how it is cut so far.
struct Words {
  std::string text;
  std::vector<Span> spans;  // in order, without overlap, none empty
  bool at_start = false;    // the first span begins where the whole input text does
};

/// What becomes of the matches of a pattern.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// One step. Immutable; thread-safe.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Words& words) const = 0;
};

/// Steps in order. `ends_in_bytes`: a last step would spell each word in GPT-2's byte-level alphabet; it is
/// left out, and the model must take the words' bytes instead, which is the same but faster.
struct PreTokenizerChain {
  std::vector<std::unique_ptr<PreTokenizer>> steps;
  bool ends_in_bytes = false;
};

/// From the JSON object of a pre-tokenizer; sequences are flattened. Throws Error(kUnsupported) naming a type
/// that is not supported.
PreTokenizerChain read_pre_tokenizer(const Json& json, const std::string& where);
/// Each regular expression in turn isolates its matches; then come the bytes. The form that GGUF files imply.
PreTokenizerChain make_regex_pre_tokenizer(const std::vector<std::string>& regexes);
/// The matches of one expression, then the bytes; what it does not match is dropped. The form of tiktoken.
PreTokenizerChain make_matching_pre_tokenizer(const std::string& regex);
/// Puts `prefix` (one character) in front of the text, unless that begins with it; nothing is cut.
PreTokenizerChain make_prefix_pre_tokenizer(std::string prefix);
/// Spells the words of a chain that ends in bytes in the byte-level alphabet after all.
void spell_bytes(PreTokenizerChain& chain);

/// GPT-2's pattern, which the type "ByteLevel" implies.
extern const char* const kGpt2Regex;

}  // namespace lmdeploy
