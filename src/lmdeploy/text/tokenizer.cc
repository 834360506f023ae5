// Tokenizer::load: which kind of tokenizer a path holds.
#include "lmdeploy/text/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/formats/turbomind/workspace.h"
#include "lmdeploy/text/files/gguf_tokenizer.h"
#include "lmdeploy/text/files/sentencepiece_tokenizer.h"
#include "lmdeploy/text/files/tiktoken.h"
#include "lmdeploy/text/files/tokenizer_json.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<const Tokenizer> make(TokenizerParts parts) {
  return std::make_shared<ComposedTokenizer>(std::move(parts));
}

TokenizerParts read_json_file_parts(const std::string& path) {
  return read_tokenizer_json(read_json_file(path), path);
}

// The one GGUF file of a folder, or the first part of the one model that is there in parts.
std::optional<std::string> find_gguf(const fs::path& folder) {
  std::vector<std::string> whole;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const std::string stem = entry.path().stem().string();
    const size_t part = stem.rfind("-of-");
    const bool later_part = part != std::string::npos && part >= 5 && stem.substr(part - 5, 5) != "00001";
    if (!later_part) whole.push_back(entry.path().string());
  }
  if (whole.empty()) return std::nullopt;
  std::sort(whole.begin(), whole.end());
  if (whole.size() > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("load tokenizer: ", folder.string(), " holds several GGUF models (", whole[0], ", ",
                    whole[1], ", ...); give the path of one"));
  return whole[0];
}

// Rules from the tiktoken.json beside a rank file, or those that go with its name.
TiktokenRules find_rules(const fs::path& file) {
  const fs::path beside = file.parent_path() / "tiktoken.json";
  if (fs::exists(beside)) return read_tiktoken_rules(read_json_file(beside.string()), beside.string());
  if (auto rules = find_tiktoken_rules(file.stem().string())) return std::move(*rules);
  throw Error(ErrorCode::kNotFound, cat("load tokenizer: ", file.string(),
                                        " has ranks only; its pattern and special tokens must stand "
                                        "in a tiktoken.json beside it, or its name must be one of ",
                                        tiktoken_names()));
}

TokenizerParts read_tiktoken_file(const fs::path& file) {
  return read_tiktoken(read_file(file.string()), find_rules(file), file.string());
}

// A .model by itself. Llama 3's is a rank file.
TokenizerParts read_model_file(const fs::path& file) {
  const std::string bytes = read_file(file.string());
  if (is_tiktoken(bytes)) return read_tiktoken(bytes, *find_tiktoken_rules("llama3"), file.string());
  return read_sentencepiece_tokenizer(bytes, file.string(), SentencePieceUse::kFile);
}

// In a folder special tokens are looked for, and BOS is put in front.
TokenizerParts as_folder(TokenizerParts parts) {
  if (parts.special_text == SpecialText::kPlain) parts.special_text = SpecialText::kParsed;
  if (parts.bos_id) parts.prefix_ids = {*parts.bos_id};
  return parts;
}

// What transformers' converters make of a folder that has only tokenizer.model.
TokenizerParts read_model_of_folder(const fs::path& folder) {
  const std::string path = (folder / "tokenizer.model").string();
  const std::string bytes = read_file(path);
  if (is_tiktoken(bytes)) return as_folder(read_tiktoken(bytes, *find_tiktoken_rules("llama3"), path));
  const bool legacy = uses_legacy_prefix(folder.string());
  return read_sentencepiece_tokenizer(bytes, path,
                                      legacy ? SentencePieceUse::kLegacyFolder : SentencePieceUse::kFolder);
}

std::optional<fs::path> find_ranks(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tiktoken") found.push_back(entry.path());
  if (found.size() > 1)
    throw Error(ErrorCode::kInvalidArgument,
                cat("load tokenizer: ", folder.string(), " holds several .tiktoken files (",
                    found[0].string(), ", ", found[1].string(), ", ...); give the path of one"));
  return found.empty() ? std::nullopt : std::optional(found[0]);
}

// The files of a folder, the most telling first.
TokenizerParts read_folder(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json"))
    return read_json_file_parts((folder / "tokenizer.json").string());
  if (const auto ranks = find_ranks(folder)) return as_folder(read_tiktoken_file(*ranks));
  if (fs::exists(folder / "tokenizer.model")) return read_model_of_folder(folder);
  throw Error(ErrorCode::kNotFound,
              cat("load tokenizer: ", folder.string(),
                  " has neither tokenizer.json nor a .gguf or .tiktoken file nor tokenizer.model"));
}

std::shared_ptr<const Tokenizer> load_folder(const std::string& path) {
  const fs::path folder(path);
  if (!fs::exists(folder / "tokenizer.json"))
    if (const auto gguf = find_gguf(folder)) return make(read_gguf_tokenizer(*gguf));
  TokenizerParts parts = read_folder(folder);
  apply_tokenizer_config(path, parts);
  return make(std::move(parts));
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  if (!fs::exists(path)) throw Error(ErrorCode::kNotFound, cat("load tokenizer: ", path, " does not exist"));
  if (const auto workspace = find_workspace(path)) return load_folder(workspace->tokenizer);
  if (fs::is_directory(path)) return load_folder(path);
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".gguf") return make(read_gguf_tokenizer(path));
  if (extension == ".json") return make(read_json_file_parts(path));
  if (extension == ".tiktoken") return make(read_tiktoken_file(path));
  if (extension == ".model") return make(read_model_file(path));
  throw Error(
      ErrorCode::kUnsupported,
      cat("load tokenizer: ", path, " is neither a folder nor a .json, .gguf, .model or .tiktoken file"));
}

}  // namespace lmdeploy
