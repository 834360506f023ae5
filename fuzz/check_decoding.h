// What holds for any tokenizer that has loaded.
#pragma once

#include <span>
#include <string>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// Decoding `ids` does not crash, and gives the same text streamed and whole.
inline void check_decoding(const Tokenizer& tokenizer, std::span<const int> ids) {
  std::string joined;
  for (const std::string& piece : tokenizer.decode_pieces(ids)) joined += piece;
  LMD_CHECK(joined == tokenizer.decode(ids), joined);
}

}  // namespace lmdeploy
