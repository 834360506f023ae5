// Tokenizers from the tokenizer.ggml.* keys of GGUF files.
#include "lmdeploy/text/files/gguf_tokenizer.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/formats/gguf.h"
#include "lmdeploy/text/files/gguf_pre_types.h"
#include "lmdeploy/text/model/ranked_merges.h"
#include "lmdeploy/text/model/word_models.h"
#include "lmdeploy/text/steps/byte_level.h"

namespace lmdeploy {
namespace {

constexpr std::string_view kMetaspace = "\u2581";

// Values of tokenizer.ggml.token_type (enum llama_token_type in llama.h).
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// Control tokens that end a turn under these names in files that lack eot_token_id and eom_token_id.
constexpr std::string_view kEndOfTurnTexts[] = {"<|eot_id|>",
                                                "<|eom_id|>",
                                                "<|im_end|>",
                                                "<|end|>",
                                                "<end_of_turn>",
                                                "<|end_of_turn|>",
                                                "<|endoftext|>",
                                                "<|eot|>",
                                                "<|return|>",
                                                "<|call|>",
                                                "<|end_of_text|>",
                                                "<EOT>",
                                                "</s>",
                                                "<\uff5cend\u2581of\u2581sentence\uff5c>"};

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path), model_(file_.get_string("tokenizer.ggml.model")) {
    if (model_.empty())
      throw Error(ErrorCode::kNotFound,
                  cat(path, ": tokenizer.ggml.model is missing; the file holds no tokenizer"));
    if (model_ != "gpt2" && model_ != "llama" && model_ != "bert")
      throw Error(ErrorCode::kUnsupported, cat(path, ": the tokenizer model \"", repair_utf8(model_),
                                               "\" is not supported; supported: gpt2, llama, bert"));
    tokens_ = array<std::string_view>("tokenizer.ggml.tokens");
    types_ = array<int64_t>("tokenizer.ggml.token_type");
    if (tokens_.empty() || tokens_.size() >= static_cast<size_t>(Vocabulary::kMaxId))
      fail("tokenizer.ggml.tokens", cat(tokens_.size(), " tokens, expected 1 to ", Vocabulary::kMaxId - 1));
    if (!types_.empty() && types_.size() != tokens_.size())
      fail("tokenizer.ggml.token_type", cat(types_.size(), " entries for ", tokens_.size(), " tokens"));
  }

  TokenizerParts read() {
    TokenizerParts parts;
    parts.vocabulary.reserve(tokens_.size());
    for (size_t id = 0; id < tokens_.size(); ++id) parts.vocabulary.add(spelling(id), static_cast<int>(id));
    bool add_bos = true;
    if (model_ == "gpt2") {
      add_bos = read_byte_level(parts);
    } else if (model_ == "bert") {
      read_word_piece(parts);
    } else {
      read_sentencepiece(parts);
    }
    add_special_tokens(parts);
    read_bos_and_eos(add_bos, parts);
    parts.chat_template = repair_utf8(file_.get_string("tokenizer.chat_template"));
    return parts;
  }

 private:
  [[noreturn]] void fail(std::string_view key, const std::string& what) const {
    throw Error(ErrorCode::kInvalidData, cat(file_.path(), ": ", key, ": ", what));
  }

  // Empty when the key is absent.
  template <typename T>
  std::vector<T> array(std::string_view key) const {
    const GgufValue* value = file_.find(key);
    if (value == nullptr) return {};
    if (const auto* found = std::get_if<std::vector<T>>(value)) return *found;
    fail(key, cat("found ", gguf_kind(*value), ", expected ", gguf_kind(GgufValue(std::vector<T>()))));
  }
  int64_t type(size_t id) const { return types_.empty() ? kNormal : types_[id]; }

  // WordPiece tokens are written with a mark where a word begins ("▁the", "ing"); here they get BERT's own,
  // where it goes on ("the", "##ing").
  std::string spelling(size_t id) const {
    std::string token = repair_utf8(tokens_[id]);
    if (model_ != "bert" || (token.starts_with('[') && token.ends_with(']'))) return token;
    return token.starts_with(kMetaspace) ? token.substr(kMetaspace.size()) : cat("##", token);
  }

  // BERT. The file does not say whether case counts; llama.cpp takes it that it does not.
  void read_word_piece(TokenizerParts& parts) const {
    parts.normalizer = read_normalizer(JsonObject{{"type", "BertNormalizer"}}, file_.path());
    parts.pre_tokenizer = read_pre_tokenizer(JsonObject{{"type", "BertPreTokenizer"}}, file_.path());
    parts.decoder = read_decoder(JsonObject{{"type", "WordPiece"}}, file_.path());
    WordPieceOptions options;
    options.unk_id = token_id_at("tokenizer.ggml.unknown_token_id", -1);
    parts.model = std::make_unique<WordPieceModel>(parts.vocabulary, options);
  }

  // Byte-level BPE. Returns whether BOS is added when the file does not say.
  bool read_byte_level(TokenizerParts& parts) {
    // GPT-NeoX models were converted before there was such a key.
    const bool neox = file_.get_string("general.architecture") == "gptneox";
    const GgufPreType pre =
        find_gguf_pre_type(file_.get_string("tokenizer.ggml.pre", neox ? "gpt-neox" : "default"));
    parts.pre_tokenizer = make_regex_pre_tokenizer(pre.regexes);
    if (pre.nfc) parts.normalizer = make_unicode_normalizer(NormalForm::kNfc);
    parts.decoder = make_byte_level_decoder();
    Vocabulary bytes;
    bytes.reserve(tokens_.size());
    for (int id = 0; id < parts.vocabulary.num_ids(); ++id)
      if (const auto spelled = byte_level_bytes(parts.vocabulary.text(id))) bytes.add(*spelled, id);
    BpeOptions options;
    options.byte_units = true;
    options.ignore_merges = pre.ignore_merges;
    parts.model = std::make_unique<BpeModel>(std::move(bytes), read_merges(parts.vocabulary), options);
    return pre.add_bos;
  }

  // "left right". Merges whose tokens are not there cannot happen and are passed over, as converters leave
  // such behind when they drop tokens.
  MergeTable read_merges(const Vocabulary& vocabulary) const {
    const auto merges = array<std::string_view>("tokenizer.ggml.merges");
    if (merges.empty()) fail("tokenizer.ggml.merges", "missing or empty, but the model is \"gpt2\"");
    if (merges.size() >= std::numeric_limits<uint32_t>::max()) fail("tokenizer.ggml.merges", "too many");
    MergeTable table(merges.size());
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const size_t space = merges[rank].find(' ', 1);
      if (space == std::string_view::npos)
        fail("tokenizer.ggml.merges", cat("entry ", rank, " is not \"left right\""));
      const std::string left = repair_utf8(merges[rank].substr(0, space));
      const std::string right = repair_utf8(merges[rank].substr(space + 1));
      const auto left_id = vocabulary.find(left), right_id = vocabulary.find(right);
      const auto joined = vocabulary.find(left + right);
      if (left_id && right_id && joined)
        table.add(*left_id, *right_id, make_merge(static_cast<uint32_t>(rank), *joined));
    }
    return table;
  }

  // SentencePiece BPE: of all neighbours that join to a token, those with the highest score join first.
  void read_sentencepiece(TokenizerParts& parts) {
    const bool add_space = file_.get_bool("tokenizer.ggml.add_space_prefix", true);
    std::vector<std::unique_ptr<Normalizer>> steps;
    if (add_space) steps.push_back(make_prepend_normalizer(std::string(kMetaspace)));
    steps.push_back(make_replace_normalizer(" ", std::string(kMetaspace)));
    parts.normalizer = make_normalizer_sequence(std::move(steps));
    parts.decoder = make_sentencepiece_decoder(add_space);
    BpeOptions options;
    options.byte_fallback = true;
    options.fuse_unk = true;
    options.unk_id = token_id_at("tokenizer.ggml.unknown_token_id", 0);
    const std::vector<double> scores = array<double>("tokenizer.ggml.scores");
    if (scores.size() != tokens_.size())
      fail("tokenizer.ggml.scores", cat(scores.size(), " entries for ", tokens_.size(), " tokens"));
    std::vector<uint32_t> ranks = rank_scores(scores, cat(file_.path(), ": tokenizer.ggml.scores"));
    for (size_t id = 0; id < tokens_.size(); ++id)
      if (!takes_part_in_merges(id)) ranks[id] = kNoRank;
    parts.model = make_ranked_bpe(parts.vocabulary, std::move(ranks), options);
  }

  bool takes_part_in_merges(size_t id) const {
    return type(id) == kNormal || type(id) == kUserDefined || type(id) == kUnused;
  }

  // Control tokens are special; user-defined ones are visible. Phi-3 takes the white space after most of them
  // in, which the file does not say (its tokenizer.json does).
  void add_special_tokens(TokenizerParts& parts) const {
    const bool phi3 = model_ == "llama" && file_.get_string("general.architecture") == "phi3";
    for (size_t id = 0; id < tokens_.size(); ++id) {
      const int64_t kind = type(id);
      if (kind != kControl && kind != kUserDefined && kind != kUnknown) continue;
      AddedToken token;
      token.content = std::string(parts.vocabulary.text(static_cast<int>(id)));
      token.special = kind != kUserDefined;
      token.rstrip =
          phi3 && token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
      if (!token.content.empty()) parts.added_tokens.add(token, static_cast<int>(id));
    }
  }

  std::optional<int> token_id_at(std::string_view key, int64_t fallback) const {
    const int64_t id = file_.get_int(key, fallback);
    if (id < 0) return std::nullopt;
    if (static_cast<size_t>(id) >= tokens_.size())
      fail(key, cat(id, " is not below the number of tokens, ", tokens_.size()));
    return static_cast<int>(id);
  }

  void read_bos_and_eos(bool add_bos, TokenizerParts& parts) const {
    const bool llama = model_ == "llama";  // SentencePiece's own ids stand in where a file says nothing
    const bool bert = model_ == "bert";    // [CLS] and [SEP]; "seperator" is llama.cpp's spelling
    parts.bos_id = token_id_at(bert ? "tokenizer.ggml.cls_token_id" : "tokenizer.ggml.bos_token_id",
                               llama && tokens_.size() > 2 ? 1 : -1);
    parts.eos_id = token_id_at(bert ? "tokenizer.ggml.seperator_token_id" : "tokenizer.ggml.eos_token_id",
                               llama && tokens_.size() > 2 ? 2 : -1);
    if (parts.bos_id) parts.bos_token = std::string(parts.vocabulary.text(*parts.bos_id));
    if (parts.eos_id) parts.eos_token = std::string(parts.vocabulary.text(*parts.eos_id));
    if (file_.get_bool("tokenizer.ggml.add_bos_token", add_bos) && parts.bos_id)
      parts.prefix_ids.push_back(*parts.bos_id);
    if (file_.get_bool("tokenizer.ggml.add_eos_token", bert) && parts.eos_id)
      parts.suffix_ids.push_back(*parts.eos_id);
    for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"})
      if (const auto id = token_id_at(key, -1)) parts.end_ids.push_back(*id);
    for (const std::string_view text : kEndOfTurnTexts) {
      const auto id = parts.vocabulary.find(text);
      if (id && type(static_cast<size_t>(*id)) == kControl) parts.end_ids.push_back(*id);
    }
  }

  GgufFile file_;
  std::string_view model_;
  std::vector<std::string_view> tokens_;
  std::vector<int64_t> types_;  // empty: all normal
};

}  // namespace

TokenizerParts read_gguf_tokenizer(const std::string& path) { return Reader(path).read(); }

}  // namespace lmdeploy
