// How GGUF files name the pre-tokenizers of byte-level BPE models ("tokenizer.ggml.pre").
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct GgufPreType {
  std::vector<std::string> regexes;  // each in turn isolates its matches
  bool ignore_merges = false;        // a word that is a token stays whole
  bool add_bos = false;              // when the file does not say
  bool nfc = false;                  // the original tokenizer normalizes; GGUF does not carry that
};

/// An unknown name gives GPT-2's pattern, with a warning that names it.
GgufPreType find_gguf_pre_type(std::string_view name);

}  // namespace lmdeploy
