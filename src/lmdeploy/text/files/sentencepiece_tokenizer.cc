// Puts normalizer, model and decoder of a .model file together.
#include "lmdeploy/text/files/sentencepiece_tokenizer.h"

#include "lmdeploy/text/files/sentencepiece_file.h"
#include "lmdeploy/text/model/sentencepiece_model.h"
#include "lmdeploy/text/steps/sentencepiece_decoder.h"
#include "lmdeploy/text/steps/sentencepiece_normalizer.h"

namespace lmdeploy {
namespace {

using Type = SentencePiece::Type;

// A file by itself shows what was unknown; in a folder the unknown piece is special, as is a control piece.
void add_special_pieces(const SentencePieceFile& file, SentencePieceUse use, TokenizerParts& parts) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    AddedToken token;
    token.content = piece.text;
    token.special = piece.type == Type::kControl || piece.type == Type::kUnknown;
    const bool visible = piece.type == Type::kUserDefined || piece.type == Type::kUnknown;
    if (piece.type == Type::kControl || (visible && use != SentencePieceUse::kFile))
      parts.added_tokens.add(token, static_cast<int>(id));
  }
}

void set_bos_and_eos(const SentencePieceFile& file, TokenizerParts& parts) {
  if (file.bos_id >= 0) {
    parts.bos_id = file.bos_id;
    parts.bos_token = parts.vocabulary.text(file.bos_id);
    parts.prefix_ids = {file.bos_id};
  }
  if (file.eos_id >= 0) {
    parts.eos_id = file.eos_id;
    parts.eos_token = parts.vocabulary.text(file.eos_id);
  }
}

}  // namespace

TokenizerParts read_sentencepiece_tokenizer(std::string_view bytes, const std::string& where,
                                            SentencePieceUse use) {
  SentencePieceFile file = read_sentencepiece_file(bytes, where);
  TokenizerParts parts;
  parts.vocabulary.reserve(file.pieces.size());
  for (size_t id = 0; id < file.pieces.size(); ++id)
    parts.vocabulary.add(file.pieces[id].text, static_cast<int>(id));
  parts.model = make_sentencepiece_model(file, parts.vocabulary, where);
  if (use == SentencePieceUse::kFile) {
    parts.decoder.push_back(make_sentencepiece_step(file));
    parts.special_text = SpecialText::kPlain;
  } else {
    parts.decoder = make_sentencepiece_decoder(/*strip_space=*/file.add_dummy_prefix);
  }
  if (use == SentencePieceUse::kFolder && file.add_dummy_prefix && !file.whitespace_as_suffix) {
    file.add_dummy_prefix = false;
    parts.pre_tokenizer = make_prefix_pre_tokenizer("\u2581");
  }
  parts.normalizer = make_sentencepiece_normalizer(file, where);
  add_special_pieces(file, use, parts);
  set_bos_and_eos(file, parts);
  return parts;
}

}  // namespace lmdeploy
