// Reads tokenizer.json: its parts, post-processor, added tokens.
#include "lmdeploy/text/files/tokenizer_json.h"

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/files/tokenizer_json_model.h"

namespace lmdeploy {
namespace {

// ["single"] of a TemplateProcessing: the ids before and after the text. Returns whether there are any.
bool read_template(const JsonFields& fields, TokenizerParts& parts) {
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
  return fields.get_array("single").size() > 1;
}

// ["[SEP]", 102] in the fields "sep" and "cls" of BertProcessing and RobertaProcessing
int read_token_pair(const JsonFields& fields, std::string_view key) {
  const JsonArray& pair = fields.get_array(key);
  if (pair.size() != 2 || !pair[1].is_int64() || pair[1].get_int64() < 0 ||
      pair[1].get_int64() >= Vocabulary::kMaxId)
    fields.fail(key, Json(pair), "[token, id]");
  return static_cast<int>(pair[1].get_int64());
}

// `in_pieces`: what a template has put together are several texts to the next processor, as in the library.
void read_post_processor(const Json& json, const std::string& where, bool& in_pieces, TokenizerParts& parts) {
  const JsonFields fields(json, where);
  const std::string type = fields.require_string("type");
  if (in_pieces && type != "Sequence" && type != "ByteLevel")
    throw Error(ErrorCode::kUnsupported,
                cat(where, ": post-processor \"", type, "\" after a TemplateProcessing is not supported"));
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& step : fields.get_array("processors"))
      read_post_processor(step, cat(where, ": [", i++, "]"), in_pieces, parts);
  } else if (type == "TemplateProcessing") {
    in_pieces = read_template(fields, parts);
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
  TokenizerParts parts;
  parts.vocabulary = read_model_vocabulary(model);
  if (const Json* normalizer = root.find("normalizer"))
    parts.normalizer = read_normalizer(*normalizer, cat(where, ": normalizer"));
  if (const Json* pre_tokenizer = root.find("pre_tokenizer"))
    parts.pre_tokenizer = read_pre_tokenizer(*pre_tokenizer, cat(where, ": pre_tokenizer"));
  parts.model = read_model(model, parts.vocabulary, parts.pre_tokenizer);
  bool in_pieces = false;
  if (const Json* post_processor = root.find("post_processor"))
    read_post_processor(*post_processor, cat(where, ": post_processor"), in_pieces, parts);
  const Json* decoder = root.find("decoder");
  parts.decoder =
      decoder == nullptr ? make_joining_decoder() : read_decoder(*decoder, cat(where, ": decoder"));
  size_t i = 0;
  for (const Json& token : root.get_array("added_tokens"))
    parts.add_token(read_added_token(JsonFields(token, cat(where, ": added_tokens[", i++, "]"))));
  return parts;
}

}  // namespace lmdeploy
