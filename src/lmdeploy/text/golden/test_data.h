// For tests: reference files that are not part of the repository, and small tokenizers that are.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/json.h"
#include "lmdeploy/text/tokenizer.h"

namespace lmdeploy {

/// Reference encodings of real tokenizers (their README describes them); the folder may be missing.
std::filesystem::path tokenizer_data();
/// Names of its subfolders that hold `file`, sorted; empty when the folder is missing.
std::vector<std::string> tokenizer_data_with(const std::string& file);
/// A gzip file, unpacked.
std::string read_gzip(const std::filesystem::path& path);
/// One JSON value per line.
std::vector<Json> parse_json_lines(std::string_view text, const std::string& where);
std::vector<int> to_ids(const Json& array);
/// The message of the Error that `run` must throw, with the code `want`.
std::string error_of(const std::function<void()>& run, ErrorCode want = ErrorCode::kInvalidArgument);
/// Fails for each line of a tokenizer's golden file (`tokenizer_data() / name / file`) that `check` finds
/// fault with (it returns what is wrong, or nothing), and when there are few lines.
void expect_golden_lines(const std::string& name, const std::string& file,
                         const std::function<std::string(const JsonObject& line)>& check);
/// Skips aloud where the folder is missing; otherwise at least `at_least` tokenizers must have the file.
void expect_golden_files(const std::string& file, size_t at_least);
/// What is wrong with a line's "dec_prefix": decodings of the first k ids, at once and streamed; nothing: all
/// right.
std::string check_decoded_prefixes(const std::shared_ptr<const Tokenizer>& tokenizer, const JsonObject& line,
                                   bool skip_special_tokens);

/// From the text of a tokenizer.json.
std::shared_ptr<const Tokenizer> tokenizer_from_json(std::string_view text);
/// A tokenizer.json: byte-level BPE with a token for each byte (ids of bytes are the bytes), a few merges,
/// and the added tokens <s> and </s> (special) and <tool> (visible).
Json tiny_byte_level_json();
std::shared_ptr<const Tokenizer> tiny_byte_level_tokenizer();
/// SentencePiece-like BPE: "▁" for spaces, byte fallback, <s> in front; Daily news at nine.
Json tiny_sentencepiece_json();
std::shared_ptr<const Tokenizer> tiny_sentencepiece_tokenizer();
/// Writes tokenizer.json and tokenizer_config.json.
void write_tokenizer_folder(const std::filesystem::path& folder, const Json& tokenizer, const Json& config);

/// Joined output of a Detokenizer that gets the ids one by one.
std::string stream_decode(const std::shared_ptr<const Tokenizer>& tokenizer, const std::vector<int>& ids,
                          bool skip_special_tokens);
/// The non-empty pieces.
std::vector<std::string> stream_pieces(const std::shared_ptr<const Tokenizer>& tokenizer,
                                       const std::vector<int>& ids, bool skip_special_tokens);

}  // namespace lmdeploy
