// The helpers of test_data.h; itself no test.
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <fstream>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/utf8.h"
#include "lmdeploy/text/composed_tokenizer.h"
#include "lmdeploy/text/files/tokenizer_json.h"
#include "lmdeploy/text/golden/test_data.h"
#include "lmdeploy/text/steps/byte_level.h"

namespace lmdeploy {

namespace fs = std::filesystem;

fs::path tokenizer_data() { return fs::path(LMDEPLOY_SOURCE_DIR) / ".." / "shared" / "data" / "tokenizers"; }

std::vector<std::string> tokenizer_data_with(const std::string& file) {
  std::vector<std::string> names;
  if (!fs::exists(tokenizer_data())) return names;
  for (const auto& entry : fs::directory_iterator(tokenizer_data()))
    if (fs::exists(entry.path() / file)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_gzip(const fs::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) throw Error(ErrorCode::kNotFound, cat("cannot open ", path.string()));
  std::string text;
  char buffer[1 << 16];
  int count = 0;
  while ((count = gzread(file, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(count));
  gzclose(file);
  if (count < 0) throw Error(ErrorCode::kInvalidData, cat(path.string(), " is no gzip file"));
  return text;
}

std::vector<Json> parse_json_lines(std::string_view text, const std::string& where) {
  std::vector<Json> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(parse_json(text.substr(0, end), where));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::vector<int> to_ids(const Json& array) {
  std::vector<int> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int>(id.as_int64()));
  return ids;
}

std::string error_of(const std::function<void()>& run, ErrorCode want) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), want) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_golden_lines(const std::string& name, const std::string& file,
                         const std::function<std::string(const JsonObject&)>& check) {
  constexpr int kMaxShown = 5;
  const auto path = tokenizer_data() / name / file;
  int failed = 0, total = 0;
  for (const Json& line : parse_json_lines(read_gzip(path), path.string())) {
    ++total;
    const std::string wrong = check(line.as_object());
    if (!wrong.empty() && ++failed <= kMaxShown)
      ADD_FAILURE() << wrong << " of " << to_json_text(line).substr(0, 1000);
  }
  EXPECT_EQ(failed, 0) << "of " << total << " lines";
  EXPECT_GT(total, 1000);
}

void expect_golden_files(const std::string& file, size_t at_least) {
  const size_t count = tokenizer_data_with(file).size();
  if (count == 0) GTEST_SKIP() << tokenizer_data() << " is not there";
  EXPECT_GE(count, at_least);
}

std::string check_decoded_prefixes(const std::shared_ptr<const Tokenizer>& tokenizer, const JsonObject& line,
                                   bool skip_special_tokens) {
  if (!line.contains("dec_prefix")) return {};
  const std::vector<int> ids = to_ids(line.at("ids"));
  for (const Json& prefix : line.at("dec_prefix").as_array()) {
    const auto count = static_cast<std::ptrdiff_t>(prefix.at(0).as_int64());
    const std::vector<int> first(ids.begin(), ids.begin() + count);
    const std::string want(prefix.at(1).as_string());
    if (tokenizer->decode(first, skip_special_tokens) != want) return cat("dec_prefix ", count);
    if (stream_decode(tokenizer, first, skip_special_tokens) != want)
      return cat("streamed dec_prefix ", count);
  }
  return {};
}

std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text) {
  return std::make_shared<ComposedTokenizer>(read_tokenizer_json(parse_json(text, "test"), "test"));
}

namespace {

JsonObject added_token(int id, const char* content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

}  // namespace

Json tiny_byte_level_json() {
  JsonObject vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    append_utf8(spelled, byte_level_char(static_cast<uint8_t>(byte)));
    vocab[spelled] = byte;
  }
  const char* const joined[] = {"he",      "ll",           "hell",    "hello",
                                "\u0120w", "\u00e9\u00b2", "\u0120o", "\u0120ok"};
  for (const char* token : joined) vocab[token] = vocab.size();
  const JsonArray merges = {"h e",      "l l",           "he ll",    "hell o",
                            "\u0120 w", "\u00e9 \u00b2", "\u0120 o", "\u0120o k"};
  const JsonObject byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  return JsonObject{{"added_tokens", JsonArray{added_token(264, "<s>", true), added_token(265, "</s>", true),
                                               added_token(266, "<tool>", false)}},
                    {"pre_tokenizer", byte_level},
                    {"decoder", byte_level},
                    {"model", JsonObject{{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

Json tiny_sentencepiece_json() {
  JsonObject vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char kDigits[] = "0123456789ABCDEF";
    vocab[std::string{'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'}] = vocab.size();
  }
  for (const char* token : {"\u2581", "D", "a", "i", "l", "y", "n", "e", "w", "s", "t", "."})
    vocab[token] = vocab.size();
  JsonArray merges;
  const auto add_merges = [&](std::initializer_list<const char*> parts) {  // joined from the left
    std::string joined;
    for (const char* part : parts) {
      if (!joined.empty()) {
        merges.push_back(JsonArray{Json(joined), Json(part)});
        if (!vocab.contains(joined + part)) vocab[joined + part] = vocab.size();
      }
      joined += part;
    }
  };
  add_merges({"\u2581", "D", "a", "i", "l", "y"});
  add_merges({"\u2581", "n", "e", "w", "s"});
  add_merges({"\u2581", "a", "t"});
  add_merges({"\u2581n", "i", "n", "e"});
  return {
      {"added_tokens",
       JsonArray{added_token(0, "<unk>", true), added_token(1, "<s>", true), added_token(2, "</s>", true)}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers",
         JsonArray{JsonObject{{"type", "Prepend"}, {"prepend", "\u2581"}},
                   JsonObject{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}}}}}},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single", JsonArray{JsonObject{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
                             JsonObject{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", JsonArray{1}}, {"tokens", JsonArray{"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         JsonArray{JsonObject{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                   JsonObject{{"type", "ByteFallback"}}, JsonObject{{"type", "Fuse"}},
                   JsonObject{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", merges}}}};
}

std::shared_ptr<const Tokenizer> tiny_byte_level_tokenizer() {
  return tokenizer_from_json(to_json_text(tiny_byte_level_json()));
}

std::shared_ptr<const Tokenizer> tiny_sentencepiece_tokenizer() {
  return tokenizer_from_json(to_json_text(tiny_sentencepiece_json()));
}

void write_tokenizer_folder(const fs::path& folder, const Json& tokenizer, const Json& config) {
  fs::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << to_json_text(tokenizer);
  std::ofstream(folder / "tokenizer_config.json") << to_json_text(config);
}

std::vector<std::string> stream_pieces(const std::shared_ptr<const Tokenizer>& tokenizer,
                                       const std::vector<int>& ids, bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::vector<std::string> pieces;
  for (const int id : ids) pieces.push_back(detokenizer.push({&id, 1}));
  pieces.push_back(detokenizer.finish());
  std::erase(pieces, std::string());
  return pieces;
}

std::string stream_decode(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<int>& ids,
                          bool skip_special_tokens) {
  std::string text;
  for (const std::string& piece : stream_pieces(tokenizer, ids, skip_special_tokens)) text += piece;
  return text;
}

}  // namespace lmdeploy
