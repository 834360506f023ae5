// Reads tokenizer.json: vocabulary, merges, post-processor, added tokens.
#include "lmdeploy/text/tokenizer_json.h"

#include <algorithm>
#include <limits>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/byte_level.h"
#include "lmdeploy/text/unicode.h"

namespace lmdeploy {
namespace {

// Files from before tokenizers 0.8 do not say what their model is.
std::string model_type(const JsonFields& model) {
  if (auto type = model.get_string("type")) return *type;
  if (model.find("merges") != nullptr) return "BPE";
  if (model.find("vocab") != nullptr && model.require("vocab").is_array()) return "Unigram";
  return model.find("max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

void require_bpe(const JsonFields& model) {
  const std::string type = model_type(model);
  if (type == "BPE") return;
  for (const char* known : {"Unigram", "WordPiece", "WordLevel"})
    if (type == known)
      throw Error(ErrorCode::kUnsupported,
                  cat(model.where(), ": the tokenizer model \"", type, "\" is not supported; BPE is"));
  throw Error(ErrorCode::kUnsupported,
              cat(model.where(), ": unknown tokenizer model \"", type, "\"; BPE is supported"));
}

Vocabulary read_vocabulary(const JsonFields& model) {
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

int find_merge_token(const JsonFields& model, const Vocabulary& vocabulary, std::string_view text,
                     size_t rank) {
  const auto id = vocabulary.find(text);
  if (!id)
    throw Error(ErrorCode::kInvalidData, cat(model.where(), ": merges[", rank, "] needs the token \"", text,
                                             "\", which is not in vocab"));
  return *id;
}

bool is_fallback_spelling(std::string_view text) { return text.size() == 6 && text.starts_with("<0x"); }

struct Merges {
  MergeTable table;
  std::vector<std::pair<char32_t, char32_t>> junctions;
  bool cuttable = true;  // no merge takes part in byte fallback
};

Merges read_merges(const JsonFields& model, const Vocabulary& vocabulary, const BpeOptions& options) {
  const JsonArray& list = model.get_array("merges");
  if (list.size() >= std::numeric_limits<uint32_t>::max())
    model.fail("merges", Json(list.size()), "fewer merges");
  Merges merges{MergeTable(list.size()), {}, true};
  for (size_t rank = 0; rank < list.size(); ++rank) {
    const TextPair pair = read_merge(model, list[rank], rank);
    const size_t dropped = std::min(options.continuing_prefix.size(), pair.right.size());
    const std::string joined = cat(pair.left, pair.right.substr(dropped));
    const int left = find_merge_token(model, vocabulary, pair.left, rank);
    const int right = find_merge_token(model, vocabulary, pair.right, rank);
    const int id = find_merge_token(model, vocabulary, joined, rank);
    merges.table.add(left, right, make_merge(static_cast<uint32_t>(rank), id));
    if (!options.byte_fallback || pair.left.empty() || pair.right.empty()) continue;
    merges.junctions.emplace_back(decode_utf8(pair.left, last_char_begin(pair.left)).code,
                                  decode_utf8(pair.right, 0).code);
    if (is_fallback_spelling(pair.left) || is_fallback_spelling(pair.right)) merges.cuttable = false;
  }
  return merges;
}

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

std::unique_ptr<BpeModel> read_bpe(const JsonFields& model, const Vocabulary& vocabulary,
                                   PreTokenizerChain& pre_tokenizer) {
  BpeOptions options = read_bpe_options(model, vocabulary);
  Merges merges = read_merges(model, vocabulary, options);
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

// ["single"] of a TemplateProcessing: the ids before and after the text.
void read_template(const JsonFields& fields, TokenizerParts& parts) {
  std::vector<int> before, after;
  bool text_seen = false;
  for (const Json& piece_json : fields.get_array("single")) {
    const JsonFields piece(piece_json, cat(fields.where(), ": single"));
    if (piece.find("Sequence") != nullptr) {
      if (text_seen) fields.fail("single", piece_json, "the text once");
      text_seen = true;
      continue;
    }
    const std::string name = piece.child("SpecialToken").require_string("id");
    const JsonFields token = fields.child("special_tokens").child(name);
    for (const Json& id : token.get_array("ids")) {
      if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= Vocabulary::kMaxId)
        token.fail("ids", id, "token ids");
      (text_seen ? after : before).push_back(static_cast<int>(id.get_int64()));
    }
  }
  if (!text_seen) fields.fail("single", fields.require("single"), "the text once");
  parts.prefix_ids.insert(parts.prefix_ids.begin(), before.begin(), before.end());
  parts.suffix_ids.insert(parts.suffix_ids.end(), after.begin(), after.end());
}

// ["[SEP]", 102] in the fields "sep" and "cls" of BertProcessing and RobertaProcessing
int read_token_pair(const JsonFields& fields, std::string_view key) {
  const JsonArray& pair = fields.get_array(key);
  if (pair.size() != 2 || !pair[1].is_int64() || pair[1].get_int64() < 0 ||
      pair[1].get_int64() >= Vocabulary::kMaxId)
    fields.fail(key, Json(pair), "[token, id]");
  return static_cast<int>(pair[1].get_int64());
}

void read_post_processor(const Json& json, const std::string& where, TokenizerParts& parts) {
  const JsonFields fields(json, where);
  const std::string type = fields.require_string("type");
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& step : fields.get_array("processors"))
      read_post_processor(step, cat(where, ": [", i++, "]"), parts);
  } else if (type == "TemplateProcessing") {
    read_template(fields, parts);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.prefix_ids.insert(parts.prefix_ids.begin(), read_token_pair(fields, "cls"));
    parts.suffix_ids.push_back(read_token_pair(fields, "sep"));
  } else if (type != "ByteLevel") {  // which only moves offsets
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": post-processor \"", type,
                    "\" is not supported; supported: Sequence, TemplateProcessing, BertProcessing, "
                    "RobertaProcessing, ByteLevel"));
  }
}

}  // namespace

AddedToken read_added_token(const JsonFields& fields) {
  AddedToken token;
  token.content = fields.require_string("content");
  token.single_word = fields.get_bool("single_word", false);
  token.lstrip = fields.get_bool("lstrip", false);
  token.rstrip = fields.get_bool("rstrip", false);
  token.special = fields.get_bool("special", false);
  token.normalized = fields.get_bool("normalized", !token.special);
  return token;
}

TokenizerParts read_tokenizer_json(const Json& json, const std::string& where) {
  const JsonFields root(json, where);
  const JsonFields model = root.child("model");
  require_bpe(model);
  TokenizerParts parts;
  parts.vocabulary = read_vocabulary(model);
  if (const Json* normalizer = root.find("normalizer"))
    parts.normalizer = read_normalizer(*normalizer, cat(where, ": normalizer"));
  if (const Json* pre_tokenizer = root.find("pre_tokenizer"))
    parts.pre_tokenizer = read_pre_tokenizer(*pre_tokenizer, cat(where, ": pre_tokenizer"));
  parts.model = read_bpe(model, parts.vocabulary, parts.pre_tokenizer);
  if (const Json* post_processor = root.find("post_processor"))
    read_post_processor(*post_processor, cat(where, ": post_processor"), parts);
  const Json* decoder = root.find("decoder");
  parts.decoder =
      decoder == nullptr ? make_joining_decoder() : read_decoder(*decoder, cat(where, ": decoder"));
  size_t i = 0;
  for (const Json& token : root.get_array("added_tokens"))
    parts.add_token(read_added_token(JsonFields(token, cat(where, ": added_tokens[", i++, "]"))));
  return parts;
}

}  // namespace lmdeploy
