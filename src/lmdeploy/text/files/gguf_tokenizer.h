// The tokenizer inside a GGUF file.
#pragma once

#include <string>

#include "lmdeploy/text/composed_tokenizer.h"

namespace lmdeploy {

/// Reads the tokenizer.ggml.* keys. Throws Error(kNotFound) when there are none, Error(kUnsupported) naming a
/// model other than "gpt2" (byte-level BPE) and "llama" (SentencePiece BPE), Error(kInvalidData).
TokenizerParts read_gguf_tokenizer(const std::string& path);

}  // namespace lmdeploy
