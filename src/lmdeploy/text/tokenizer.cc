// Tokenizer::load: which kind of tokenizer a path holds.
#include "lmdeploy/text/tokenizer.h"

#include <algorithm>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/text/gguf_tokenizer.h"
#include "lmdeploy/text/tokenizer_json.h"

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

std::shared_ptr<const Tokenizer> load_folder(const std::string& path) {
  const fs::path folder(path);
  if (fs::exists(folder / "tokenizer.json")) {
    TokenizerParts parts = read_json_file_parts((folder / "tokenizer.json").string());
    apply_tokenizer_config(path, parts);
    return make(std::move(parts));
  }
  if (const auto gguf = find_gguf(folder)) return make(read_gguf_tokenizer(*gguf));
  if (fs::exists(folder / "tokenizer.model"))
    throw Error(
        ErrorCode::kUnsupported,
        cat("load tokenizer: ", path,
            " has only a SentencePiece tokenizer.model, which cannot be read; tokenizer.json is needed "
            "(transformers' AutoTokenizer.from_pretrained(...).save_pretrained(...) writes one)"));
  throw Error(ErrorCode::kNotFound,
              cat("load tokenizer: ", path, " has neither tokenizer.json nor a .gguf file"));
}

}  // namespace

std::shared_ptr<const Tokenizer> Tokenizer::load(const std::string& path) {
  if (!fs::exists(path)) throw Error(ErrorCode::kNotFound, cat("load tokenizer: ", path, " does not exist"));
  if (fs::is_directory(path)) return load_folder(path);
  const std::string extension = fs::path(path).extension().string();
  if (extension == ".gguf") return make(read_gguf_tokenizer(path));
  if (extension == ".json") return make(read_json_file_parts(path));
  throw Error(ErrorCode::kUnsupported,
              cat("load tokenizer: ", path, " is neither a folder nor a .json or .gguf file"));
}

}  // namespace lmdeploy
