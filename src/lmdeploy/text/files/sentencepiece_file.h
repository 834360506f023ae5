// SentencePiece's .model files: a protocol buffer with pieces and options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lmdeploy {

struct SentencePiece {
  enum class Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  std::string text;  // valid UTF-8, not empty, of one piece only
  float score = 0;   // finite
  Type type = Type::kNormal;
};

/// Defaults are those of sentencepiece_model.proto.
struct SentencePieceFile {
  enum class Model { kUnigram = 1, kBpe, kWord, kChar };
  std::vector<SentencePiece> pieces;  // by id; not empty
  Model model = Model::kUnigram;
  int unk_id = 0;                        // the one piece of type kUnknown
  int bos_id = 1, eos_id = 2;            // -1 when no such control piece exists
  std::string unk_surface = " \u2047 ";  // what decoding makes of unk_id
  bool whitespace_as_suffix = false;     // "▁" ends words instead of beginning them
  bool add_dummy_prefix = true;          // "▁" in front of the text (at its end when a suffix)
  bool remove_extra_whitespaces = true;  // at both ends, and all but one in a row
  bool escape_whitespaces = true;        // spaces become "▁"
  std::string charsmap;                  // see Charsmap; "": text stays as it is
};

/// `where` (the path) begins error messages. Throws Error(kInvalidData | kUnsupported).
SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& where);

}  // namespace lmdeploy
