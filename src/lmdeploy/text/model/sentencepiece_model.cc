// Unigram and BPE on the models that other files use too; char and word by looking up. Source:
// unigram_model.cc, bpe_model.cc, char_model.cc, word_model.cc and model_interface.cc of SentencePiece
// 0.1.97.
#include "lmdeploy/text/model/sentencepiece_model.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/ranked_merges.h"
#include "lmdeploy/text/model/unigram_model.h"

namespace lmdeploy {
namespace {

using Type = SentencePiece::Type;
constexpr std::string_view kMetaspace = "\u2581";

bool has_bytes(const SentencePieceFile& file) {
  return std::any_of(file.pieces.begin(), file.pieces.end(),
                     [](const SentencePiece& piece) { return piece.type == Type::kByte; });
}

ByteFallback byte_fallback_of(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  return has_bytes(file) ? ByteFallback(vocabulary) : ByteFallback();
}

// User-defined pieces are tokens wherever they stand; the model sees what lies between them.
class AroundUserDefined : public TokenModel {
 public:
  AroundUserDefined(const SentencePieceFile& file, std::unique_ptr<TokenModel> model)
      : model_(std::move(model)) {
    std::vector<std::pair<std::string_view, int>> entries;
    for (size_t id = 0; id < file.pieces.size(); ++id)
      if (file.pieces[id].type == Type::kUserDefined)
        entries.emplace_back(file.pieces[id].text, static_cast<int>(id));
    pieces_ = ByteTrie(std::move(entries));
  }

  void encode(std::string_view text, EncodeScratch& scratch, std::vector<int>& ids) const override {
    size_t from = 0;  // of the text that the model has not seen
    for (size_t at = 0; at < text.size();) {
      const ByteTrie::Match piece = pieces_.longest(text.substr(at));
      if (piece.size == 0) {
        at += decode_utf8(text, at).size;
        continue;
      }
      if (from < at) model_->encode(text.substr(from, at - from), scratch, ids);
      ids.push_back(piece.value);
      at += piece.size;
      from = at;
    }
    if (from < text.size()) model_->encode(text.substr(from), scratch, ids);
  }

 private:
  std::unique_ptr<TokenModel> model_;
  ByteTrie pieces_;
};

// Char and word models: each unit is one piece, or unknown.
class UnitModel : public TokenModel {
 public:
  UnitModel(const SentencePieceFile& file, const Vocabulary& vocabulary)
      : vocabulary_(vocabulary),
        byte_fallback_(byte_fallback_of(file, vocabulary)),
        unk_id_(file.unk_id),
        words_(file.model == SentencePieceFile::Model::kWord),
        suffix_(file.whitespace_as_suffix) {}

  void encode(std::string_view text, EncodeScratch&, std::vector<int>& ids) const override {
    bool after_unknown = false;  // of unknown units in a row only the first gets unk_id
    for (size_t at = 0; at < text.size();) {
      const std::string_view unit = text.substr(at, unit_size(text.substr(at)));
      at += unit.size();
      const int id = vocabulary_.find(unit).value_or(unk_id_);
      const bool unknown = id == unk_id_;
      if (unknown && byte_fallback_.append(unit, ids)) continue;
      if (!unknown || !after_unknown) ids.push_back(id);
      after_unknown = unknown;
    }
  }

 private:
  // A character; or a word, which "▁" begins or, as a suffix, ends.
  size_t unit_size(std::string_view text) const {
    if (!words_) return decode_utf8(text, 0).size;
    const size_t space = text.find(kMetaspace, suffix_ ? 0 : 1);
    if (space == std::string_view::npos) return text.size();
    return suffix_ ? space + kMetaspace.size() : space;
  }

  Vocabulary vocabulary_;
  ByteFallback byte_fallback_;
  int unk_id_;
  bool words_, suffix_;
};

std::unique_ptr<TokenModel> make_unigram(const SentencePieceFile& file, const Vocabulary& vocabulary) {
  constexpr float kUnknownPenalty = 10;
  float lowest = std::numeric_limits<float>::max(), highest = std::numeric_limits<float>::min();
  for (const SentencePiece& piece : file.pieces) {
    if (piece.type != Type::kNormal) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  std::vector<UnigramToken> tokens;
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const SentencePiece& piece = file.pieces[id];
    // a user-defined piece beats all ways to cut its text
    const double bonus = static_cast<double>(static_cast<float>(piece.text.size()) * highest) - 0.1;
    if (piece.type == Type::kNormal) tokens.push_back({piece.text, piece.score, static_cast<int>(id)});
    if (piece.type == Type::kUserDefined) tokens.push_back({piece.text, bonus, static_cast<int>(id)});
  }
  UnigramOptions options;
  options.unk_id = file.unk_id;
  options.unk_score = static_cast<double>(lowest - kUnknownPenalty);
  options.byte_fallback = byte_fallback_of(file, vocabulary);
  options.round_to_f32 = true;
  return std::make_unique<UnigramModel>(tokens, options);
}

std::unique_ptr<TokenModel> make_bpe(const SentencePieceFile& file, const Vocabulary& vocabulary,
                                     const std::string& where) {
  std::vector<double> scores;
  for (const SentencePiece& piece : file.pieces) scores.push_back(piece.score);
  std::vector<uint32_t> ranks = rank_scores(scores, where);
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    const Type type = file.pieces[id].type;
    if (type != Type::kNormal && type != Type::kUserDefined) ranks[id] = kNoRank;
  }
  BpeOptions options;
  options.unk_id = file.unk_id;
  options.fuse_unk = true;
  options.byte_fallback = has_bytes(file);
  return make_ranked_bpe(vocabulary, std::move(ranks), options);
}

}  // namespace

std::unique_ptr<TokenModel> make_sentencepiece_model(const SentencePieceFile& file,
                                                     const Vocabulary& vocabulary, const std::string& where) {
  using Model = SentencePieceFile::Model;
  if (file.model == Model::kUnigram) return make_unigram(file, vocabulary);
  if (file.model == Model::kWord) return std::make_unique<UnitModel>(file, vocabulary);
  auto model = file.model == Model::kBpe ? make_bpe(file, vocabulary, where)
                                         : std::make_unique<UnitModel>(file, vocabulary);
  return std::make_unique<AroundUserDefined>(file, std::move(model));
}

}  // namespace lmdeploy
