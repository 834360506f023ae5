// Reads decoders and puts their steps together.
#include "lmdeploy/text/steps/decoder.h"

#include <utility>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/files/json_fields.h"
#include "lmdeploy/text/steps/decoder_steps.h"

namespace lmdeploy {
namespace {

std::unique_ptr<Decoder> read_replace(const JsonFields& fields) {
  std::string content = fields.require_string("content");
  auto literal = fields.child("pattern").get_string("String");
  if (literal && !literal->empty()) return make_replace_step(std::move(*literal), std::move(content));
  return make_replace_step(read_pattern(fields), std::move(content));
}

std::unique_ptr<Decoder> read_strip(const JsonFields& fields) {
  constexpr int kMaxStripped = 1 << 20;
  std::string content = fields.get_string("content").value_or(" ");
  if (content.empty() || decode_utf8(content, 0).size != content.size())
    fields.fail("content", Json(content), "one character");
  return make_strip_step(std::move(content), fields.get_count("start", kMaxStripped).value_or(0),
                         fields.get_count("stop", kMaxStripped).value_or(0));
}

std::unique_ptr<Decoder> read_metaspace(const JsonFields& fields) {
  const bool prepends = fields.get_bool("add_prefix_space", true) &&
                        fields.get_string("prepend_scheme").value_or("always") != "never";
  return make_metaspace_step(fields.get_string("replacement").value_or("\u2581"), prepends);
}

void read_steps(const Json& json, const std::string& where, DecoderChain& chain) {
  const JsonFields fields(json, where);
  const std::string type = fields.require_string("type");
  if (type == "Sequence") {
    size_t i = 0;
    for (const Json& step : fields.get_array("decoders"))
      read_steps(step, cat(where, ": [", i++, "]"), chain);
  } else if (type == "ByteLevel") {
    chain.push_back(make_byte_level_step());
  } else if (type == "ByteFallback") {
    chain.push_back(make_byte_fallback_step());
  } else if (type == "Fuse") {
    chain.push_back(make_fuse_step());
  } else if (type == "Replace") {
    chain.push_back(read_replace(fields));
  } else if (type == "Strip") {
    chain.push_back(read_strip(fields));
  } else if (type == "Metaspace") {
    chain.push_back(read_metaspace(fields));
  } else if (type == "BPEDecoder") {
    chain.push_back(make_word_suffix_step(fields.get_string("suffix").value_or("</w>")));
  } else if (type == "WordPiece") {
    chain.push_back(
        make_word_piece_step(fields.get_string("prefix").value_or("##"), fields.get_bool("cleanup", true)));
  } else if (type == "CTC") {
    chain.push_back(make_ctc_step({.pad_token = fields.get_string("pad_token").value_or("<pad>"),
                                   .word_delimiter = fields.get_string("word_delimiter_token").value_or("|"),
                                   .cleanup = fields.get_bool("cleanup", true)}));
  } else {
    throw Error(
        ErrorCode::kUnsupported,
        cat(where, ": decoder \"", type,
            "\" is not supported; supported: Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, "
            "Metaspace, BPEDecoder, WordPiece, CTC"));
  }
}

// Source: clean_up_tokenization in tokenization_utils_base.py of transformers 4.51; the order matters.
constexpr std::pair<const char*, const char*> kCleanUps[] = {
    {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
    {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

}  // namespace

DecoderChain read_decoder(const Json& json, const std::string& where) {
  DecoderChain chain;
  read_steps(json, where, chain);
  return chain;
}

DecoderChain make_joining_decoder() {
  DecoderChain chain;
  chain.push_back(make_join_step());
  return chain;
}

DecoderChain make_byte_level_decoder() {
  DecoderChain chain;
  chain.push_back(make_byte_level_step());
  return chain;
}

DecoderChain make_sentencepiece_decoder(bool strip_space) {
  DecoderChain chain;
  chain.push_back(make_replace_step("\u2581", " "));
  chain.push_back(make_byte_fallback_step());
  chain.push_back(make_fuse_step());
  if (strip_space) chain.push_back(make_strip_step(" ", 1, 0));
  return chain;
}

void add_space_clean_up(DecoderChain& chain) {
  chain.push_back(make_fuse_step());
  for (const auto& [found, wanted] : kCleanUps) chain.push_back(make_replace_step(found, wanted));
}

}  // namespace lmdeploy
