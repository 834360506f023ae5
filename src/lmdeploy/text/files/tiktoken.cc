// Reads ranks, and puts the tokenizer together.
#include "lmdeploy/text/files/tiktoken.h"

#include <algorithm>
#include <charconv>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/files/base64.h"
#include "lmdeploy/text/model/ranked_merges.h"
#include "lmdeploy/text/steps/byte_level.h"

namespace lmdeploy {
namespace {

struct RankLine {
  std::string bytes;
  int rank;
};

// "IQ== 0"; Whisper's file has one token without bytes, "= 50256".
std::optional<RankLine> parse_line(std::string_view line) {
  const size_t space = line.find(' ');
  if (space == std::string_view::npos) return std::nullopt;
  auto bytes = decode_base64(line.substr(0, space));
  const std::string_view digits = line.substr(space + 1);
  int rank = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (!bytes || error != std::errc() || end != digits.data() + digits.size() || rank < 0) return std::nullopt;
  return RankLine{std::move(*bytes), rank};
}

std::string_view next_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// The tokens in bytes, by id.
Vocabulary read_ranks(std::string_view text, int id_offset, const std::string& where) {
  Vocabulary vocabulary;
  vocabulary.reserve(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  for (size_t number = 1; !text.empty(); ++number) {
    const std::string_view line = next_line(text);
    if (line.empty()) continue;
    const auto fail = [&](const std::string& what) {
      throw Error(ErrorCode::kInvalidData,
                  cat(where, ": line ", number, " is \"", repair_utf8(line.substr(0, 60)), "\", ", what));
    };
    const auto entry = parse_line(line);
    if (!entry) fail("expected \"base64 rank\"");
    if (entry->rank >= Vocabulary::kMaxId - id_offset)
      fail(cat("its rank is not below ", Vocabulary::kMaxId - id_offset));
    const int id = entry->rank + id_offset;
    if (vocabulary.contains(id)) fail("a rank that another line has");
    if (vocabulary.find(entry->bytes)) fail("a token that another line has");
    vocabulary.add(entry->bytes, id);
  }
  for (int byte = 0; byte < 256; ++byte)
    if (!vocabulary.find(std::string(1, static_cast<char>(byte))))
      throw Error(ErrorCode::kInvalidData,
                  cat(where, ": no token stands for the single byte ", byte, "; each byte needs one"));
  return vocabulary;
}

std::vector<uint32_t> ranks_of(const Vocabulary& vocabulary) {
  std::vector<uint32_t> ranks(static_cast<size_t>(vocabulary.num_ids()), kNoRank);
  for (int id = 0; id < vocabulary.num_ids(); ++id)
    if (vocabulary.contains(id)) ranks[static_cast<size_t>(id)] = static_cast<uint32_t>(id);
  return ranks;
}

void add_special_tokens(const TiktokenRules& rules, const std::string& where, TokenizerParts& parts) {
  const auto add = [&](const std::string& text, int id) {
    if (parts.vocabulary.contains(id))
      throw Error(ErrorCode::kInvalidData,
                  cat(where, ": the special token \"", text, "\" has id ", id, ", which is a token's"));
    AddedToken token;
    token.content = text;
    token.special = true;
    parts.add_token(token, id);
  };
  for (const auto& [text, id] : rules.special_tokens) add(text, id);
  for (int id = 0; id < rules.id_offset; ++id)
    if (!parts.added_tokens.by_id().contains(id)) add(cat("<SPECIAL_", id, ">"), id);
}

}  // namespace

bool is_tiktoken(std::string_view bytes) {
  constexpr size_t kLongestLine = 4096;
  bytes = bytes.substr(0, kLongestLine);
  return parse_line(next_line(bytes)).has_value();
}

TokenizerParts read_tiktoken(std::string_view bytes, const TiktokenRules& rules, const std::string& where) {
  Vocabulary tokens = read_ranks(bytes, rules.id_offset, where);
  TokenizerParts parts;
  parts.vocabulary.reserve(static_cast<size_t>(tokens.num_tokens()));
  for (int id = 0; id < tokens.num_ids(); ++id) {
    if (!tokens.contains(id)) continue;
    std::string spelled;
    append_byte_level(spelled, tokens.text(id));
    parts.vocabulary.add(spelled, id);
  }
  BpeOptions options;
  options.byte_units = true;
  options.ignore_merges = true;
  std::vector<uint32_t> ranks = ranks_of(tokens);
  parts.model = make_ranked_bpe(std::move(tokens), std::move(ranks), options);
  if (rules.nfc) parts.normalizer = make_unicode_normalizer(NormalForm::kNfc);
  parts.pre_tokenizer = make_matching_pre_tokenizer(rules.pattern);
  parts.decoder = make_byte_level_decoder();
  add_special_tokens(rules, where, parts);
  // Tekken's own library never looks for special tokens in text.
  parts.special_text = rules.id_offset > 0 ? SpecialText::kAlwaysPlain : SpecialText::kPlain;
  parts.bos_token = rules.bos;
  parts.eos_token = rules.eos;
  parts.bos_id = parts.added_tokens.find(rules.bos);
  parts.eos_id = parts.added_tokens.find(rules.eos);
  if (const auto id = parts.added_tokens.find(rules.end_of_turn)) parts.end_ids.push_back(*id);
  return parts;
}

}  // namespace lmdeploy
