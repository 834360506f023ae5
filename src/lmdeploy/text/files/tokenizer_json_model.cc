// Reads "model" of tokenizer.json: vocabulary, merges, scores.
#include "lmdeploy/text/files/tokenizer_json_model.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/model/bpe_model.h"
#include "lmdeploy/text/model/unigram_model.h"
#include "lmdeploy/text/model/word_models.h"
#include "lmdeploy/text/steps/byte_level.h"
#include "lmdeploy/text/unicode/unicode.h"

namespace lmdeploy {
namespace {

// BPE, Unigram, WordPiece or WordLevel. Files from before tokenizers 0.8 do not say what their model is.
std::string model_type(const JsonFields& model) {
  if (auto type = model.get_string("type")) {
    for (const char* known : {"BPE", "Unigram", "WordPiece", "WordLevel"})
      if (*type == known) return *type;
    throw Error(ErrorCode::kUnsupported,
                cat(model.where(), ": tokenizer model \"", *type,
                    "\" is not supported; supported: BPE, Unigram, WordPiece, WordLevel"));
  }
  if (model.find("merges") != nullptr) return "BPE";
  if (model.find("vocab") != nullptr && model.require("vocab").is_array()) return "Unigram";
  return model.find("max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

Vocabulary read_token_map(const JsonFields& model) {
  const Json& vocab = model.require("vocab");
  if (!vocab.is_object()) model.fail("vocab", vocab, "an object of token: id");
  Vocabulary vocabulary;
  vocabulary.reserve(vocab.get_object().size());
  for (const auto& [text, id] : vocab.get_object()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= Vocabulary::kMaxId)
      throw Error(ErrorCode::kInvalidData,
                  cat(model.where(), ": vocab: the id of \"", std::string_view(text), "\" is ",
                      to_json_text(id), ", expected an integer from 0 to ", Vocabulary::kMaxId - 1));
    const int number = static_cast<int>(id.get_int64());
    if (vocabulary.contains(number))
      throw Error(ErrorCode::kInvalidData,
                  cat(model.where(), ": vocab: \"", vocabulary.text(number), "\" and \"",
                      std::string_view(text), "\" have the same id ", number));
    vocabulary.add(text, number);
  }
  return vocabulary;
}

struct ScoredText {
  std::string_view text;
  double score;
};

// Unigram: [["token", score], ...]; the place is the id.
ScoredText read_scored(const JsonFields& model, const Json& entry, size_t id) {
  const auto* pair = entry.if_array();
  if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_number())
    model.fail(cat("vocab[", id, "]"), entry, "[\"token\", score]");
  return {(*pair)[0].get_string(), (*pair)[1].to_number<double>()};
}

Vocabulary read_scored_vocabulary(const JsonFields& model) {
  const JsonArray& entries = model.get_array("vocab");
  if (entries.size() >= static_cast<size_t>(Vocabulary::kMaxId))
    model.fail("vocab", Json(entries.size()), cat("fewer than ", Vocabulary::kMaxId, " tokens"));
  Vocabulary vocabulary;
  vocabulary.reserve(entries.size());
  for (size_t id = 0; id < entries.size(); ++id)
    vocabulary.add(read_scored(model, entries[id], id).text, static_cast<int>(id));
  return vocabulary;
}

struct TextPair {
  std::string_view left, right;
};

// "a b" or ["a", "b"]
TextPair read_merge(const JsonFields& model, const Json& merge, size_t rank) {
  if (const auto* text = merge.if_string()) {
    const std::string_view view = *text;
    const size_t space = view.find(' ');
    if (space != std::string_view::npos && view.find(' ', space + 1) == std::string_view::npos)
      return {view.substr(0, space), view.substr(space + 1)};
  } else if (const auto* pair = merge.if_array();
             pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
    return {(*pair)[0].get_string(), (*pair)[1].get_string()};
  }
  model.fail(cat("merges[", rank, "]"), merge, "\"left right\" or [\"left\", \"right\"]");
}

bool is_fallback_spelling(std::string_view text) { return text.size() == 6 && text.starts_with("<0x"); }

struct Merges {
  MergeTable table;
  std::vector<std::pair<char32_t, char32_t>> junctions;
  bool cuttable = true;  // no merge takes part in byte fallback
};

class MergeReader {
 public:
  MergeReader(const JsonFields& model, const Vocabulary& vocabulary, const BpeOptions& options)
      : model_(model), vocabulary_(vocabulary), options_(options), list_(model.get_array("merges")) {
    if (list_.size() >= std::numeric_limits<uint32_t>::max())
      model.fail("merges", Json(list_.size()), "fewer merges");
  }

  Merges run() {
    Merges merges{MergeTable(list_.size()), {}, true};
    for (size_t begin = 0; begin < list_.size(); begin += kBlock)
      read_block(begin, std::min(begin + kBlock, list_.size()), merges);
    return merges;
  }

 private:
  static constexpr size_t kBlock = 64;  // merges looked up together

  void read_block(size_t begin, size_t end, Merges& merges) {
    TextPair pairs[kBlock];
    std::string_view parts[2 * kBlock];
    int ids[2 * kBlock];
    for (size_t i = 0; i < end - begin; ++i) {
      pairs[i] = read_merge(model_, list_[begin + i], begin + i);
      parts[2 * i] = pairs[i].left;
      parts[2 * i + 1] = pairs[i].right;
    }
    vocabulary_.find_all({parts, 2 * (end - begin)}, ids);
    for (size_t i = 0; i < end - begin; ++i) merges.table.prefetch(ids[2 * i], ids[2 * i + 1]);
    for (size_t i = 0; i < end - begin; ++i) {
      const size_t rank = begin + i;
      check_found(ids[2 * i], pairs[i].left, rank);
      check_found(ids[2 * i + 1], pairs[i].right, rank);
      joined_ = find_joined(pairs[i], rank);
      merges.table.add(ids[2 * i], ids[2 * i + 1], make_merge(static_cast<uint32_t>(rank), joined_));
      if (options_.byte_fallback) note_junction(pairs[i], merges);
    }
  }

  void check_found(int id, std::string_view text, size_t rank) const {
    if (id < 0)
      throw Error(ErrorCode::kInvalidData, cat(model_.where(), ": merges[", rank, "] needs the token \"",
                                               text, "\", which is not in vocab"));
  }

  // Most files list merges in the order of the ids they make, so that the id made last or its successor is
  // looked at first. Keys of a JSON object differ, so no other id has the same spelling.
  int find_joined(const TextPair& pair, size_t rank) {
    const size_t dropped = std::min(options_.continuing_prefix.size(), pair.right.size());
    joined_text_.assign(pair.left).append(pair.right.substr(dropped));
    for (const int guess : {joined_, joined_ + 1})
      if (vocabulary_.contains(guess) && vocabulary_.text(guess) == joined_text_) return guess;
    const int id = vocabulary_.find(joined_text_).value_or(-1);
    check_found(id, joined_text_, rank);
    return id;
  }

  static void note_junction(const TextPair& pair, Merges& merges) {
    if (pair.left.empty() || pair.right.empty()) return;
    merges.junctions.emplace_back(decode_utf8(pair.left, last_char_begin(pair.left)).code,
                                  decode_utf8(pair.right, 0).code);
    if (is_fallback_spelling(pair.left) || is_fallback_spelling(pair.right)) merges.cuttable = false;
  }

  const JsonFields& model_;
  const Vocabulary& vocabulary_;
  const BpeOptions& options_;
  const JsonArray& list_;
  std::string joined_text_;
  int joined_ = -1;  // by the merge before
};

BpeOptions read_bpe_options(const JsonFields& model, const Vocabulary& vocabulary) {
  BpeOptions options;
  options.fuse_unk = model.get_bool("fuse_unk", false);
  options.byte_fallback = model.get_bool("byte_fallback", false);
  options.ignore_merges = model.get_bool("ignore_merges", false);
  options.continuing_prefix = model.get_string("continuing_subword_prefix").value_or("");
  options.end_suffix = model.get_string("end_of_word_suffix").value_or("");
  if (const auto unk = model.get_string("unk_token")) {
    options.unk_id = vocabulary.find(*unk);
    if (!options.unk_id)
      LMD_LOG(kWarning, model.where(), ": unk_token \"", *unk,
              "\" is not in vocab; unknown characters are dropped");
  }
  return options;
}

// The vocabulary in bytes instead of the byte-level alphabet. Tokens that no bytes spell cannot occur in
// words.
Vocabulary in_bytes(const Vocabulary& vocabulary) {
  Vocabulary bytes;
  bytes.reserve(static_cast<size_t>(vocabulary.num_ids()));
  for (int id = 0; id < vocabulary.num_ids(); ++id)
    if (vocabulary.contains(id))
      if (const auto spelled = byte_level_bytes(vocabulary.text(id))) bytes.add(*spelled, id);
  return bytes;
}

std::unique_ptr<TokenModel> read_bpe(const JsonFields& model, const Vocabulary& vocabulary,
                                     PreTokenizerChain& pre_tokenizer) {
  BpeOptions options = read_bpe_options(model, vocabulary);
  Merges merges = MergeReader(model, vocabulary, options).run();
  const auto prefix = byte_level_bytes(options.continuing_prefix),
             suffix = byte_level_bytes(options.end_suffix);
  options.byte_units = pre_tokenizer.ends_in_bytes && !options.byte_fallback && prefix && suffix;
  if (!options.byte_units) {
    spell_bytes(pre_tokenizer);
    auto bpe = std::make_unique<BpeModel>(vocabulary, std::move(merges.table), std::move(options));
    for (const auto& [left, right] : merges.junctions) bpe->note_junction(left, right);
    if (merges.cuttable) bpe->allow_cuts();
    return bpe;
  }
  options.continuing_prefix = *prefix;
  options.end_suffix = *suffix;
  return std::make_unique<BpeModel>(in_bytes(vocabulary), std::move(merges.table), std::move(options));
}

std::unique_ptr<TokenModel> read_unigram(const JsonFields& model, const Vocabulary& vocabulary) {
  constexpr double kUnknownPenalty = 10;
  const JsonArray& entries = model.get_array("vocab");
  UnigramOptions options;
  options.unk_id = model.get_count("unk_id", Vocabulary::kMaxId);
  if (options.unk_id && !vocabulary.contains(*options.unk_id))
    model.fail("unk_id", Json(*options.unk_id), cat("less than the number of tokens, ", entries.size()));
  if (model.get_bool("byte_fallback", false)) options.byte_fallback = ByteFallback(vocabulary);
  std::vector<UnigramToken> tokens;
  double lowest = std::numeric_limits<double>::infinity();
  for (size_t id = 0; id < entries.size(); ++id) {
    const ScoredText entry = read_scored(model, entries[id], id);
    tokens.push_back({entry.text, entry.score, static_cast<int>(id)});
    lowest = std::min(lowest, entry.score);
  }
  options.unk_score = lowest - kUnknownPenalty;
  return std::make_unique<UnigramModel>(tokens, options);
}

std::optional<int> read_unk_token(const JsonFields& model, const Vocabulary& vocabulary,
                                  const std::string& fallback) {
  return vocabulary.find(model.get_string("unk_token").value_or(fallback));
}

std::unique_ptr<TokenModel> read_word_piece(const JsonFields& model, const Vocabulary& vocabulary) {
  WordPieceOptions options;
  options.unk_id = read_unk_token(model, vocabulary, "[UNK]");
  if (auto prefix = model.get_string("continuing_subword_prefix"))
    options.continuing_prefix = std::move(*prefix);
  if (const auto max_chars = model.get_count("max_input_chars_per_word", std::numeric_limits<int>::max()))
    options.max_chars = static_cast<size_t>(*max_chars);
  return std::make_unique<WordPieceModel>(vocabulary, options);
}

}  // namespace

Vocabulary read_model_vocabulary(const JsonFields& model) {
  return model_type(model) == "Unigram" ? read_scored_vocabulary(model) : read_token_map(model);
}

std::unique_ptr<TokenModel> read_model(const JsonFields& model, const Vocabulary& vocabulary,
                                       PreTokenizerChain& pre_tokenizer) {
  const std::string type = model_type(model);
  if (type == "BPE") return read_bpe(model, vocabulary, pre_tokenizer);
  spell_bytes(pre_tokenizer);
  if (type == "Unigram") return read_unigram(model, vocabulary);
  if (type == "WordPiece") return read_word_piece(model, vocabulary);
  return std::make_unique<WordLevelModel>(vocabulary, read_unk_token(model, vocabulary, "<unk>"));
}

}  // namespace lmdeploy
