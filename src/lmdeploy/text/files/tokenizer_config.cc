// tokenizer_config.json, special_tokens_map.json and chat_template.jinja: what transformers does with them.
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "lmdeploy/core/error.h"
#include "lmdeploy/core/log.h"
#include "lmdeploy/core/mapped_file.h"
#include "lmdeploy/text/files/tokenizer_json.h"

namespace lmdeploy {
namespace {

namespace fs = std::filesystem;

struct ConfigFile {
  std::string path;
  Json json;  // {} when there is no such file
  JsonFields fields() const { return {json, path}; }
};

ConfigFile read_config(const fs::path& path) {
  return {path.string(), fs::exists(path) ? read_json_file(path.string()) : Json(JsonObject())};
}

// A special token's entry: a string, or an object with its text in "content".
AddedToken read_special(const Json& value, const std::string& where) {
  AddedToken token;
  if (const auto* text = value.if_string()) {
    token.content = std::string(*text);
  } else {
    token = read_added_token(JsonFields(value, where));
  }
  token.special = true;
  return token;
}

// Both files of a folder; a field of the first hides that of the second.
class ConfigFiles {
 public:
  explicit ConfigFiles(const fs::path& folder)
      : files_{read_config(folder / "tokenizer_config.json"),
               read_config(folder / "special_tokens_map.json")} {}

  JsonFields config() const { return files_[0].fields(); }
  std::optional<AddedToken> special_token(std::string_view key) const {
    for (const ConfigFile& file : files_)
      if (const Json* value = file.fields().find(key)) return read_special(*value, cat(file.path, ": ", key));
    return std::nullopt;
  }
  std::vector<AddedToken> additional_special_tokens() const {
    constexpr std::string_view kKey = "additional_special_tokens";
    std::vector<AddedToken> tokens;
    for (const ConfigFile& file : files_)
      if (tokens.empty())
        for (const Json& token : file.fields().get_array(kKey))
          tokens.push_back(read_special(token, cat(file.path, ": ", kKey)));
    return tokens;
  }

 private:
  ConfigFile files_[2];
};

constexpr std::string_view kSpecialTokenKeys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                  "pad_token", "cls_token", "mask_token"};

// added_tokens_decoder: {"id": {"content": ...}}, in order of the ids.
std::vector<AddedToken> read_added_tokens_decoder(const JsonFields& config) {
  std::vector<std::pair<int, AddedToken>> tokens;
  if (config.find("added_tokens_decoder") == nullptr) return {};
  const Json& entries = config.require("added_tokens_decoder");
  if (!entries.is_object()) config.fail("added_tokens_decoder", entries, "an object");
  for (const auto& [key, entry] : entries.get_object()) {
    const std::string_view digits = key;
    int id = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), id);
    if (error != std::errc() || end != digits.data() + digits.size())
      config.fail("added_tokens_decoder", Json(digits), "token ids as keys");
    tokens.emplace_back(id,
                        read_added_token({entry, cat(config.where(), ": added_tokens_decoder: ", digits)}));
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<AddedToken> in_order;
  for (auto& [id, token] : tokens) in_order.push_back(std::move(token));
  return in_order;
}

// Tokens of the config with their flags, then named special tokens that are no added tokens yet.
void add_config_tokens(const ConfigFiles& files, TokenizerParts& parts) {
  for (const AddedToken& token : read_added_tokens_decoder(files.config())) parts.add_token(token);
  const auto add_special = [&](const AddedToken& token) {
    if (!parts.added_tokens.find(token.content)) parts.add_token(token);
  };
  for (const std::string_view key : kSpecialTokenKeys)
    if (const auto token = files.special_token(key)) add_special(*token);
  for (const AddedToken& token : files.additional_special_tokens()) add_special(token);
}

// Classes whose add_bos_token is on when the config does not mention it (LlamaTokenizerFast.__init__ and
// GemmaTokenizerFast.__init__ in transformers 4.51).
bool adds_bos_by_default(const std::string& tokenizer_class) {
  for (const char* family : {"LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer"})
    if (tokenizer_class == family || tokenizer_class == cat(family, "Fast")) return true;
  return false;
}

// Puts one BOS in front, or takes it away; likewise EOS at the end.
void apply_bos_and_eos(const JsonFields& config, TokenizerParts& parts) {
  const bool by_default = adds_bos_by_default(config.get_string("tokenizer_class").value_or(""));
  auto add_bos = config.get_bool("add_bos_token");
  if (!add_bos && by_default) add_bos = true;
  if (add_bos && parts.bos_id) {
    std::vector<int>& ids = parts.prefix_ids;
    const bool there = !ids.empty() && ids.front() == *parts.bos_id;
    if (*add_bos && !there) ids.insert(ids.begin(), *parts.bos_id);
    if (!*add_bos && there) ids.erase(ids.begin());
  } else if (add_bos.value_or(false)) {
    LMD_LOG(kWarning, config.where(),
            ": a BOS token is to be added, but bos_token is not set; none is added");
  }
  const auto add_eos = config.get_bool("add_eos_token");
  if (!add_eos || !parts.eos_id) return;
  std::vector<int>& ids = parts.suffix_ids;
  const bool there = !ids.empty() && ids.back() == *parts.eos_id;
  if (*add_eos && !there) ids.push_back(*parts.eos_id);
  if (!*add_eos && there) ids.pop_back();
}

// A string, or [{"name": ..., "template": ...}]: "default", else the first.
std::string read_chat_template(const JsonFields& config) {
  const Json* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (const auto* text = value->if_string()) return std::string(*text);
  std::optional<std::string> chosen;
  for (const Json& entry : config.get_array("chat_template")) {
    const JsonFields named(entry, cat(config.where(), ": chat_template"));
    if (!chosen || named.require_string("name") == "default") chosen = named.require_string("template");
  }
  return chosen.value_or("");
}

}  // namespace

void apply_tokenizer_config(const std::string& folder, TokenizerParts& parts) {
  const ConfigFiles files{fs::path(folder)};
  const JsonFields config = files.config();
  add_config_tokens(files, parts);
  if (const auto bos = files.special_token("bos_token")) parts.bos_token = bos->content;
  if (const auto eos = files.special_token("eos_token")) parts.eos_token = eos->content;
  if (!parts.bos_token.empty()) parts.bos_id = parts.find_token(parts.bos_token);
  if (!parts.eos_token.empty()) parts.eos_id = parts.find_token(parts.eos_token);
  apply_bos_and_eos(config, parts);
  if (config.get_bool("clean_up_tokenization_spaces", false)) add_space_clean_up(parts.decoder);
  parts.chat_template = read_chat_template(config);
  const fs::path jinja = fs::path(folder) / "chat_template.jinja";
  if (fs::exists(jinja)) parts.chat_template = read_file(jinja.string());
}

bool uses_legacy_prefix(const std::string& folder) {
  return read_config(fs::path(folder) / "tokenizer_config.json").fields().get_bool("legacy", true);
}

}  // namespace lmdeploy
